// A server of values in memory, over HTTP: server PORT ENTRIES
//
// /get?n=COUNT looks up COUNT random keys and answers with the bytes that their values hold.
package main

import (
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"strconv"
)

func main() {
	entries, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	table := make(map[int]string, entries)
	for i := 0; i < entries; i++ {
		table[i*7] = fmt.Sprintf("value of %d", i)
	}
	http.HandleFunc("/get", func(answer http.ResponseWriter, request *http.Request) {
		count, _ := strconv.Atoi(request.URL.Query().Get("n"))
		sum := 0
		for ; count > 0; count-- {
			sum += len(table[rand.Intn(entries)*7])
		}
		fmt.Fprintln(answer, sum)
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], nil); err != nil {
		panic(err)
	}
}
