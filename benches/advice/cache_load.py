"""A load on memcached: cache_load.py PORT set|get KEYS [COUNT]

`set` stores KEYS values of 64 to 191 bytes, and waits until memcached has moved them to the larger
hash table, as it does in the background; `get` reads COUNT random ones, fifty in a request.
"""

import random
import socket
import sys
import time

port, action, keys = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
chosen = random.Random(1)
with socket.create_connection(("127.0.0.1", port)) as connection:
    answers = connection.makefile("rb")
    if action == "set":
        for first in range(0, keys, 1000):
            lines = []
            for key in range(first, min(first + 1000, keys)):
                value = b"x" * (64 + key % 128)
                lines.append(b"set key:%d 0 0 %d noreply\r\n%s\r\n" % (key, len(value), value))
            connection.sendall(b"".join(lines))
        connection.sendall(b"version\r\n")
        answers.readline()
        statistics = b"hash_is_expanding 1"
        while b"hash_is_expanding 1" in statistics:
            time.sleep(0.05)
            connection.sendall(b"stats\r\n")
            statistics = b""
            while not statistics.endswith(b"END\r\n"):
                line = answers.readline()
                if not line:
                    sys.exit("memcached has closed the connection")
                statistics += line
    else:
        found = 0
        for _ in range(int(sys.argv[4]) // 50):
            names = b" ".join(b"key:%d" % chosen.randrange(keys) for _ in range(50))
            connection.sendall(b"get %s\r\n" % names)
            while (line := answers.readline()) != b"END\r\n":
                answers.read(int(line.split()[3]) + 2)
                found += 1
        print(f"{found} found")
