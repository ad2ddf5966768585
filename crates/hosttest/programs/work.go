// Goroutines that call C, files, a child, a nil pointer (a handled SIGSEGV).
package main

// #include <unistd.h>
// static int twice(int x) { return getpid() > 0 ? 2 * x : 0; }
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
)

func fault() (caught bool) {
	defer func() { caught = recover() != nil }()
	var nothing *int
	*nothing = 1
	return false
}

func main() {
	var wait sync.WaitGroup
	var mutex sync.Mutex
	sum := 0
	for i := 0; i < 500; i++ {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			name := fmt.Sprintf("f%d", i)
			os.WriteFile(name, []byte(name), 0600)
			bytes, _ := os.ReadFile(name)
			mutex.Lock()
			defer mutex.Unlock()
			sum += int(C.twice(C.int(len(bytes))))
		}(i)
	}
	wait.Wait()
	out, err := exec.Command("echo", "child").Output()
	fmt.Println(sum, string(out), err, fault())
}
