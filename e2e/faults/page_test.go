package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A row holds the measurements of a fault.
type row struct {
	fault      string        // a run replaces the row with the same fault
	saw        string        // observations without a column
	rate       int           // requests per second
	of, while  answers       // all answers, and those due during the fault
	outage     time.Duration // from the start of the fault until the last error
	size       size          // at most
	lost, over string        // charges that were acknowledged and lost; admitted above a limit
	late       string        // charges of hits that had been answered with an error long before
	errors     string        // if they are not counted from the answers
}

var recorded struct {
	sync.Mutex
	rows []row
}

// record adds a row to the rows that publish writes.
func record(r row) {
	recorded.Lock()
	defer recorded.Unlock()
	recorded.rows = append(recorded.rows, r)
}

// These lines enclose the measured part of the page. A row begins with its fault, and a run replaces the rows of its faults.
const (
	begin = "<!-- measured: make chaos -->\n"
	end   = "<!-- end -->\n"
	head  = "| fault | requests/s | errors | answered meanwhile: 99.9 % within | the longest | errors for | charged after the error | charges lost | over a limit | goroutines | memory |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|\n"
)

func (r *row) String() string {
	none := func(n int64, unit string) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n, unit)
	}
	if r.errors == "" && len(r.of) > 0 {
		r.errors = fmt.Sprintf("%d of %d", len(r.of.withVerdict(failed)), len(r.of))
	}
	name := r.fault
	if r.saw != "" {
		name += besides + r.saw
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, none(int64(r.rate), ""), r.errors,
		short(r.while.quantile(.999)), short(r.of.quantile(1)), short(r.outage), r.late, r.lost, r.over,
		none(int64(r.size.goroutines), ""), none(r.size.resident>>20, " MB"))
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// publish writes the measurements into the page, or logs them if there is no page.
func publish() error {
	if len(recorded.rows) == 0 {
		return nil
	}
	var lines []string
	for i := range recorded.rows {
		lines = append(lines, recorded.rows[i].String())
	}
	fmt.Print(head, strings.Join(lines, ""))
	if *page == "" {
		return nil
	}
	b, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	text, err := replaced(string(b), lines)
	if err != nil {
		return fmt.Errorf("%s: %w", *page, err)
	}
	return os.WriteFile(*page, []byte(text), 0o644)
}

// besides separates the name of a fault from its observations.
const besides = " — "

// replaced returns the page with these lines instead of those of the same faults, or after them.
func replaced(text string, lines []string) (string, error) {
	before, rest, found := strings.Cut(text, begin)
	old, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("no %q and %q", begin, end)
	}
	var all []string
	if _, rows, any := strings.Cut(old, "|---|\n"); any {
		all = slices.Collect(strings.Lines(rows))
	}
	for _, line := range lines {
		same := func(other string) bool { return fault(other) == fault(line) }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i] = line
		} else {
			all = append(all, line)
		}
	}
	return before + begin + head + strings.Join(all, "") + end + after, nil
}

func fault(line string) string {
	fields := strings.SplitN(line, "|", 3)
	name, _, _ := strings.Cut(fields[min(1, len(fields)-1)], besides)
	return strings.TrimSpace(name)
}
