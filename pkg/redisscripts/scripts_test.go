package redisscripts

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

func TestEveryAlgorithmHasALuaTwin(t *testing.T) {
	var names []string
	for _, a := range Algorithms {
		names = append(names, a.Name)
	}
	if want := slices.Sorted(slices.Values(limiters.Algorithms())); !slices.Equal(names, want) {
		t.Errorf("scripts for %q, want %q", names, want)
	}
}

// The header of each script describes its interface.
func TestLuaHeadersDescribeTheInterface(t *testing.T) {
	sources := map[string]string{"batch": driver}
	for _, a := range Algorithms {
		sources[a.Name] = a.Source
	}
	for name, source := range sources {
		header, _, _ := strings.Cut(source, "\nlocal ")
		for _, want := range []string{"-- " + name + ": ", "KEYS", "ARGV", "units", "reply"} {
			if !strings.Contains(header, want) {
				t.Errorf("%s: the header lacks %q", name, want)
			}
		}
	}
}

// Lua writes 1763683200000001 as 1.7636832e+15 by default. Only the driver may read a clock.
func TestLuaKeepsDigitsAndReadsNoClock(t *testing.T) {
	loses := regexp.MustCompile(`tostring\(|cjson|[^.]\.\.[^.]`)
	for _, a := range Algorithms {
		for i, line := range strings.Split(a.Source, "\n") {
			code, _, _ := strings.Cut(line, "--")
			if loses.MatchString(code) || strings.Contains(code, "'TIME'") {
				t.Errorf("%s.lua:%d: %s", a.Name, i+1, line)
			}
		}
	}
}

// The constants of all files are replaced in the whole script, so a name has one number.
func TestConstantsHaveOneNumberInTheWholeScript(t *testing.T) {
	numbers := map[string]string{}
	for _, name := range append([]string{"prelude", "batch"}, append(parts, limiters.Algorithms()...)...) {
		for _, line := range constants.FindAllStringSubmatch(source(name), -1) {
			values := strings.Split(line[2], ", ")
			for i, c := range strings.Split(line[1], ", ") {
				if had, found := numbers[c]; found && had != values[i] {
					t.Errorf("%s.lua: %s is %s, and %s elsewhere", name, c, values[i], had)
				}
				numbers[c] = values[i]
			}
		}
	}
	if script := Batch(Algorithms...); numbers["MAX_HITS"] != "2 ^ 52" || strings.Contains(script, "MAX_HITS") {
		t.Error("the script has a constant by name: want its number")
	}
}
