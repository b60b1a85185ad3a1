// Fills the Go heap, prints "ready" and waits.
package main

import (
	"fmt"
	"time"
)

func main() {
	var kept [][]int64
	for at := 0; at < 1_500_000; at++ {
		kept = append(kept, make([]int64, 12))
	}
	fmt.Println("ready")
	time.Sleep(10 * time.Minute)
	fmt.Println(len(kept))
}
