package redisscripts

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/pkg/limiters"
)

func TestScriptHasEveryFile(t *testing.T) {
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	script := Source()
	for _, entry := range entries {
		if !strings.Contains(script, source(strings.TrimSuffix(entry.Name(), ".lua"))) {
			t.Errorf("the script lacks %s", entry.Name())
		}
	}
}

// The header of each script describes its interface.
func TestLuaHeadersDescribeTheInterface(t *testing.T) {
	sources := map[string]string{"batch": driver}
	for _, name := range limiters.Algorithms() {
		sources[name] = source(name)
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

// A constant that a file does not declare is a global, which fails a call only when its line runs.
func TestConstantsAreDeclaredInTheirFile(t *testing.T) {
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	comment, text := regexp.MustCompile(`--.*`), regexp.MustCompile(`'[^']*'`)
	constant, locals := regexp.MustCompile(`(^|[^.\w])([A-Z][A-Z_]+)\b`), regexp.MustCompile(`\blocal ([^=\n]+)`)
	for _, entry := range entries {
		source := source(strings.TrimSuffix(entry.Name(), ".lua"))
		code := text.ReplaceAllString(comment.ReplaceAllString(source, ""), "''")
		declared := []string{"KEYS", "ARGV", "PACKED", "FORMAT"} // of Redis, and of Source
		for _, names := range locals.FindAllStringSubmatch(code, -1) {
			for name := range strings.SplitSeq(names[1], ",") {
				declared = append(declared, strings.TrimSpace(name))
			}
		}
		for _, name := range constant.FindAllStringSubmatch(code, -1) {
			if !slices.Contains(declared, name[2]) {
				t.Errorf("%s uses %s, which it does not declare", entry.Name(), name[2])
			}
		}
	}
}

// Functions declare the constants that they use, because a local that closures capture costs time in every call. So a constant has
// several declarations.
func TestConstantsOfOneNameAreEqual(t *testing.T) {
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"MAX_HITS":   fmt.Sprintf("2 ^ %d", bits.TrailingZeros64(uint64(limiters.MaxHits))),
		"MAX_LEASES": fmt.Sprint(limiters.MaxLeases),
		"ENDED_FOR":  fmt.Sprint(limiters.EndedTTL.Microseconds()),
	}
	if limiters.MaxHits&(limiters.MaxHits-1) != 0 {
		t.Fatalf("MaxHits is %d, want a power of 2", limiters.MaxHits)
	}
	declaration := regexp.MustCompile(`(?m)\blocal ([A-Z][A-Z_]+(?:, [A-Z][A-Z_]+)*) = (.*?)(?: --.*)?$`)
	for _, entry := range entries {
		for _, d := range declaration.FindAllStringSubmatch(source(strings.TrimSuffix(entry.Name(), ".lua")), -1) {
			names, got := strings.Split(d[1], ", "), strings.Split(d[2], ", ")
			if len(got) != len(names) {
				t.Fatalf("%s: %d names and %d values in %q", entry.Name(), len(names), len(got), d[0])
			}
			for i, name := range names {
				want, seen := values[name]
				if seen && got[i] != want {
					t.Errorf("%s: %s is %s, want %s as elsewhere", entry.Name(), name, got[i], want)
				}
				values[name] = got[i]
			}
		}
	}
}

// Lua writes 1763683200000001 as 1.7636832e+15 by default. Only the driver may read a clock.
func TestLuaKeepsDigitsAndReadsNoClock(t *testing.T) {
	loses := regexp.MustCompile(`tostring\(|cjson|[^.]\.\.[^.]`)
	harmless := map[string][]string{ // texts, which have no digits to lose, and the driver's clock
		"batch.lua":        {"call('TIME')", "tostring(problem)", "'>' .. string.sub(FORMAT"},
		"reservations.lua": {"id .. 'e'"},
	}
	entries, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		for i, line := range strings.Split(source(strings.TrimSuffix(name, ".lua")), "\n") {
			code, _, _ := strings.Cut(line, "--")
			if loses.MatchString(code) || strings.Contains(code, "'TIME'") {
				if !slices.ContainsFunc(harmless[name], func(text string) bool { return strings.Contains(code, text) }) {
					t.Errorf("%s:%d: %s", name, i+1, line)
				}
			}
		}
	}
}
