package redisstore

import (
	"flag"
	"os"
	"testing"
)

// TestMain sets 6 parallel tests by default, because most of them wait for a server.
func TestMain(m *testing.M) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := flag.Set(parallel.Name, "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
