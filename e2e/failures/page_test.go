package failures

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A row holds the measurements of a failure.
type row struct {
	failure    string        // a run replaces the row with the same failure
	rate       int           // requests per second
	of, while  answers       // all answers, and those due during the failure
	outage     time.Duration // from the start of the failure until the last error
	size       size          // at most
	lost, over string        // charges that were acknowledged and lost; admitted above a limit
	late       string        // charges of hits that had been answered with an error long before
	errors     string        // if they are not counted from the answers
	other      string        // further results
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

// These lines enclose each measured table of the page. A row begins with its failure, and a run
// replaces the rows of its failures.
const (
	begin = "<!-- measured: make chaos -->\n"
	end   = "<!-- end -->\n"
	head  = "| failure | requests/s | errors | latency | other results |\n|---|---|---|---|---|\n"
	none  = "–" // in a cell: not measured
)

func (r *row) String() string {
	rate, errs, latency := none, r.errors, none
	if r.rate > 0 {
		rate = fmt.Sprint(r.rate)
	}
	if errs == "" {
		errs = fmt.Sprintf("%d of %d", len(r.of.withVerdict(failed)), len(r.of))
	}
	if r.outage > 0 && !strings.HasPrefix(errs, "0 of ") {
		errs += ", for " + short(r.outage)
	}
	if len(r.while) > 0 {
		latency = fmt.Sprintf("%s, at most %s", short(r.while.quantile(.999)), short(r.of.quantile(1)))
	}
	var others []string
	add := func(name, value string) {
		if value != "" {
			others = append(others, name+value)
		}
	}
	add("charges lost: ", r.lost)
	add("over the limits: ", r.over)
	add("charged after the error: ", r.late)
	if r.size.goroutines > 0 {
		add("goroutines: at most ", fmt.Sprint(r.size.goroutines))
	}
	if r.size.resident > 0 {
		add("memory: at most ", fmt.Sprintf("%d MB", r.size.resident>>20))
	}
	add("", r.other)
	return fmt.Sprintf("| %s | %s | %s | %s | %s |\n", r.failure, rate, errs, latency, cmp.Or(strings.Join(others, "; "), none))
}

func short(d time.Duration) string {
	switch {
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

// replaced returns the page with these lines instead of the rows of the same failures, in all
// measured tables. The first table gets the lines of failures that have no row yet.
func replaced(text string, lines []string) (string, error) {
	lines = slices.Clone(lines)
	tables := strings.Split(text, begin)
	for i := len(tables) - 1; i >= 1; i-- {
		old, after, ends := strings.Cut(tables[i], end)
		if !ends {
			return "", fmt.Errorf("%q without %q", begin, end)
		}
		_, rows, _ := strings.Cut(old, "|---|\n")
		all := slices.Collect(strings.Lines(rows))
		for j, row := range all {
			same := func(line string) bool { return failureOf(line) == failureOf(row) }
			if k := slices.IndexFunc(lines, same); k >= 0 {
				all[j] = lines[k]
				lines = slices.Delete(lines, k, k+1)
			}
		}
		if i == 1 {
			all = append(all, lines...)
		}
		tables[i] = head + strings.Join(all, "") + end + after
	}
	if len(tables) == 1 {
		return "", fmt.Errorf("no %q", begin)
	}
	return strings.Join(tables, begin), nil
}

func failureOf(line string) string {
	fields := strings.SplitN(line, "|", 3)
	return strings.TrimSpace(fields[min(1, len(fields)-1)])
}
