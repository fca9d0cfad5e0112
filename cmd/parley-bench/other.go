//go:build !linux

// Command parley-bench puts load on a Parley server, checks what it promises, and reports how fast it is.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "parley-bench: the load harness needs Linux: it uses epoll and /proc")
	os.Exit(1)
}
