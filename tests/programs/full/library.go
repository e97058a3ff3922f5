// A library for other languages: see library.py. It makes masks, alternate stacks and processes by instructions of its own.
package main

import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

var kept [][]byte

//export Fill
func Fill(mib C.int) {
	for i := 0; i < int(mib); i++ {
		block := make([]byte, 1<<20)
		for j := range block {
			block[j] = byte(i*31 + j>>3)
		}
		kept = append(kept, block)
	}
	runtime.GC()
}

// The sum of what Fill wrote, or -1.
//
//export Sum
func Sum() C.long {
	var sum int64
	for i, block := range kept {
		for j, b := range block {
			if b != byte(i*31+j>>3) {
				return -1
			}
			sum += int64(b)
		}
	}
	return C.long(sum)
}

//export Executed
func Executed(count C.int) C.int {
	right := 0
	for i := 0; i < int(count); i++ {
		want := fmt.Sprintf("number %d", i)
		if out, err := exec.Command("echo", want).Output(); err == nil && string(out) == want+"\n" {
			right++
		}
	}
	return C.int(right)
}

//export Signals
func Signals(count C.int) C.int {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGUSR1)
	defer signal.Stop(told)
	right := 0
	for i := 0; i < int(count); i++ {
		if syscall.Kill(os.Getpid(), syscall.SIGUSR1) != nil {
			continue
		}
		select {
		case <-told:
			right++
		case <-time.After(60 * time.Second):
		}
	}
	return C.int(right)
}

// Each on a thread of its own, at the same time.
//
//export Threads
func Threads(count C.int) C.int {
	var done sync.WaitGroup
	var lock sync.Mutex
	right := 0
	for i := 0; i < int(count); i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			in, out, err := os.Pipe()
			if err != nil {
				return
			}
			defer in.Close()
			defer out.Close()
			block := make([]byte, 1<<16)
			time.Sleep(5 * time.Millisecond)
			if n, err := out.Write(block[:100]); err != nil || n != 100 {
				return
			}
			if n, err := in.Read(block); err == nil && n == 100 {
				lock.Lock()
				right++
				lock.Unlock()
			}
		}()
	}
	done.Wait()
	return C.int(right)
}

// Faults that Go makes panics of.
//
//export Panics
func Panics(count C.int) C.int {
	right := 0
	for i := 0; i < int(count); i++ {
		func() {
			defer func() {
				if recover() != nil {
					right++
				}
			}()
			var nowhere *int
			*nowhere = 1
		}()
	}
	return C.int(right)
}

func main() {}
