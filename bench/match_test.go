package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// BenchmarkMatch finds the rule of a request of two entries among many rules. "one" asks for the
// same rule each time, "all" for all rules in random order.
func BenchmarkMatch(b *testing.B) {
	for _, among := range []string{"one", "all"} {
		for _, n := range []int{10, 100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", among, n), func(b *testing.B) {
				rules, err := readRules(b.TempDir(), "fixed_window", n)
				must.Succeed(b, err)
				// The names are contiguous, like those of a request, so only the rules miss the
				// cache.
				const length = len("user-00000000")
				names := &strings.Builder{}
				for _, user := range rand.Perm(n) {
					fmt.Fprintf(names, "user-%08d", user)
				}
				all := names.String()
				if among == "one" {
					all = all[:length]
				}
				request := []descriptors.Entry{{Key: "user_id"}, {Key: "action", Value: action(0)}}
				b.ReportAllocs()
				at := 0
				for b.Loop() {
					request[0].Value = all[at : at+length]
					if rules.Match(domain, request) == nil {
						b.Fatal("no rule")
					}
					at += length
					if at == len(all) {
						at = 0
					}
				}
			})
		}
	}
}

func readRules(dir, algorithm string, users int) (*descriptors.Rules, error) {
	folder, err := writeRules(dir, algorithm, users)
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return nil, err
	}
	var files []rulesfile.File
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, rulesfile.File{Name: name, Data: data})
	}
	rules, _, err := rulesfile.ParseWith(rulesfile.Options{MergeDomains: true}, files...)
	return rules, err
}
