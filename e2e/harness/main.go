package harness

import (
	"flag"
	"fmt"
	"os"
)

// Main runs the tests m, at most parallel at a time, and then remove. It returns the exit code. Without Envoy it prints an error
// once and runs no test.
func Main(m interface{ Run() int }, name, parallel string, remove func() error) int {
	flag.Parse()
	_, err := FindEnvoy()
	if err == nil {
		err = flag.Set("test.parallel", parallel)
	}
	code := 1
	if err == nil {
		code = m.Run()
		err = remove()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 1
	}
	return code
}
