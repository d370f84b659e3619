package manifests

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// The numbers of docs/capacity.md come from docs/benchmarks.md and must stay close to them.
func TestCapacityPageMatchesBenchmarks(t *testing.T) {
	capacity, measured := readFile(t, root+"/docs/capacity.md"), readFile(t, root+"/docs/benchmarks.md")
	one := chapter(t, measured, "### One descriptor")
	cpu := chapter(t, capacity, "## CPU")
	memory := chapter(t, measured, "### Memory for a key of 40 bytes")
	for _, algorithm := range []string{"fixed_window", "sliding_log", "funnel"} {
		for column, text := range cells(t, cpu, "64") {
			var low, high float64
			_, err := fmt.Sscanf(text, "%f to %f µs", &low, &high)
			must.Succeed(t, err)
			if n := row(t, one, "redis/"+algorithm)[column+1]; math.Round(n) < low || math.Round(n) > high {
				t.Errorf("%s: docs/capacity.md has %s, measured are %v", algorithm, text, n)
			}
		}
		near(t, algorithm+": bytes a key", row(t, chapter(t, capacity, "## Memory"), algorithm)[0], row(t, memory, algorithm)[0])
		for column, title := range map[int]string{
			1: "### Weir's memory for a key of 40 bytes with one hit", 3: "### Redis' memory for a key of 40 bytes with one hit",
		} {
			if got, want := cells(t, chapter(t, capacity, "## Memory"), algorithm)[column], bytesByKeys(t, measured, title, algorithm); got != want {
				t.Errorf("%s: docs/capacity.md has %s bytes a key, measured are %s", algorithm, got, want)
			}
		}
	}
}

// bytesByKeys returns the least and the most bytes of a key with one hit.
func bytesByKeys(t *testing.T, measured, title, algorithm string) string {
	t.Helper()
	full := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(title) + `.*$`).FindString(measured)
	least, most := math.Inf(1), 0.0
	rows := regexp.MustCompile(`(?m)^\| ` + algorithm + ` \| \d+ \| ([0-9.]+) \|$`)
	for _, line := range rows.FindAllStringSubmatch(chapter(t, measured, full), -1) {
		n, err := strconv.ParseFloat(line[1], 64)
		must.Succeed(t, err)
		least, most = min(least, n), max(most, n)
	}
	return fmt.Sprintf("%.0f to %.0f", least, most)
}

// The table of replicas follows from the CPU time of a request: half a core each, at 70 %, and one
// more.
func TestCapacityPageComputesReplicas(t *testing.T) {
	cpu := chapter(t, readFile(t, root+"/docs/capacity.md"), "## CPU")
	for _, rate := range []int{1_000, 10_000, 50_000, 100_000} {
		name := fmt.Sprintf("%d,000", rate/1000)
		cores := float64(rate) * 30e-6
		got := row(t, cpu, name)
		if want := math.Ceil(cores/0.35) + 1; got[1] != want || math.Abs(got[0]-cores) > 0.01 {
			t.Errorf("%s requests a second: %v cores and %v replicas, want %v and %v", name, got[0], got[1], cores, want)
		}
	}
}

func chapter(t *testing.T, text, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+title+"\n")
	if !found {
		t.Fatalf("no section %q", title)
	}
	if end := regexp.MustCompile(`(?m)^##`).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// row returns the numbers of a table row. A cell without a number is 0.
func row(t *testing.T, text, name string) (numbers []float64) {
	t.Helper()
	for _, cell := range cells(t, text, name) {
		n, _ := strconv.ParseFloat(cell, 64)
		numbers = append(numbers, n)
	}
	return numbers
}

// cells returns the cells of a table row behind its name.
func cells(t *testing.T, text, name string) (texts []string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + `[^|]*\|(.+)\|$`).FindStringSubmatch(text)
	if line == nil {
		t.Fatalf("no row %s in\n%s", name, text)
	}
	for cell := range strings.SplitSeq(line[1], "|") {
		texts = append(texts, strings.TrimSpace(cell))
	}
	return texts
}

func near(t *testing.T, what string, said, measured float64) {
	t.Helper()
	if measured == 0 || said < measured/1.5 || said > measured*1.5 {
		t.Errorf("%s: docs/capacity.md has %v, measured is %v: update the page", what, said, measured)
	}
}
