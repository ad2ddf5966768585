// Writes, lists and reads in a directory, by system calls that no preload library sees.
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

func main() {
	dir := filepath.Join(os.Args[1], "go")
	must(os.Mkdir(dir, 0o755))
	var group sync.WaitGroup
	for i := range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			text := make([]byte, i*10000)
			for at := range text {
				text[at] = byte(at * i)
			}
			must(os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), text, 0o644))
		}()
	}
	group.Wait()
	entries, err := os.ReadDir(dir)
	must(err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		must(err)
		fmt.Printf("%s %d %x\n", entry.Name(), len(text), sha256.Sum256(text))
	}
	must(os.RemoveAll(dir))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
