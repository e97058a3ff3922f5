// Objects in a map, made by goroutines; net has the program use cgo.
package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
)

type node struct {
	key  int
	name string
	next *node
	data [64]byte
}

func main() {
	_, _ = net.LookupPort("tcp", "http")
	scale, _ := strconv.Atoi(os.Args[1])
	n := 500000 * scale
	m := make(map[int]*node)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for w := 0; w < 4; w++ {
		wg.Add(1)
		go func(w int) {
			defer wg.Done()
			for i := w; i < n; i += 4 {
				x := &node{key: i, name: "n" + strconv.Itoa(i)}
				x.data[i%64] = byte(i)
				mu.Lock()
				m[i] = x
				mu.Unlock()
			}
		}(w)
	}
	wg.Wait()
	sum := 0
	for i := 0; i < n; i++ {
		x := m[i]
		if x == nil || x.key != i || x.data[i%64] != byte(i) || x.name != "n"+strconv.Itoa(i) {
			fmt.Println("wrong", i)
			os.Exit(1)
		}
		sum += len(x.name)
	}
	runtime.GC()
	fmt.Println("ok", sum, len(m))
}
