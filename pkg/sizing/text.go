package sizing

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes l for people.
func (l *LocalLimit) WriteText(w io.Writer) error {
	if l.Replicas == 1 {
		_, err := fmt.Fprintf(w, "Local limit: %d requests in a window. One replica counts all requests, so its local limit is the whole limit.\n"+
			"Set --replicas to the number of replicas that share the limit.\n", l.Requests)
		return err
	}
	fmt.Fprintf(w, "Local limit: %d requests in a window, %d replicas that each count by themselves, false-limit probability %g\n\n",
		l.Requests, l.Replicas, l.Probability)
	table := newTable(w)
	fmt.Fprintln(table, "LOCAL LIMIT\tCHOICE\tONE REPLICA EXCEEDS IT\tANY REPLICA EXCEEDS IT\tFALSELY DENIED\tTOGETHER\tOVER")
	for _, c := range []struct {
		choice string
		*Candidate
	}{{"equal part", &l.EqualPart}, {"one replica", &l.One}, {"any replica", &l.Any}} {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t+%d (%.2f times)\n", c.Limit, c.choice, probability(c.OneExceeds, c.OneExceeds),
			probability(c.AnyExceedsLow, c.AnyExceeds), percent(c.Denied), c.Together, c.Over, float64(c.Together)/float64(l.Requests))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
one replica: the smallest limit that a given replica exceeds with a probability of at most %[1]g
any replica: the same for the first replica that exceeds it; on_store_error: local uses this choice
TOGETHER: the most that all replicas admit in a window, if the requests do not spread evenly
`, l.Probability)
	return err
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func probability(low, high float64) string {
	a, b := fmt.Sprintf("%.3g", low), fmt.Sprintf("%.3g", high)
	if a == b {
		return a
	}
	return a + " to " + b
}

func percent(part float64) string { return fmt.Sprintf("%.3g %%", 100*part) }

// WriteText writes p for people.
func (p *Plan) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "Plan: %d users, %s, %d replicas, false-limit probability %g\n\nMemory of the keys, at most\n",
		p.Users, rate(p.Rate), p.Replicas, p.Probability)
	table := newTable(w)
	fmt.Fprintln(table, "DOMAIN\tRULE\tLIMIT\tALGORITHM\tKEYS\tIN WEIR'S MEMORY\tON REDIS")
	for i := range p.Limits {
		l := &p.Limits[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.0f\t%s\t%s\n", l.Domain, l.path(), l.text(), l.Algorithm, l.Keys, bytesOf(l.MemoryBytes), bytesOf(l.RedisBytes))
	}
	fmt.Fprintf(table, "all\t\t\t\t%.0f\t%s\t%s\n", p.Keys, bytesOf(p.MemoryBytes), bytesOf(p.RedisBytes))
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nRedis calls: at most %g for each request, and %g on a Redis Cluster; %s\n", p.Calls.PerRequest, p.Calls.Cluster, p.callRate())
	if p.Rate > 0 {
		if err := p.writeCores(w); err != nil {
			return err
		}
	}
	if err := p.writeOver(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nMeasured on\n")
	for _, machine := range Figures().Machines {
		fmt.Fprintf(w, "  %s\n", machine)
	}
	return nil
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "an unknown rate"
	}
	return fmt.Sprintf("%g requests a second", perSecond)
}

func (p *Plan) callRate() string {
	if p.Rate == 0 {
		return "set --rate for the calls a second"
	}
	return fmt.Sprintf("at most %g a second to one Redis. Denied requests that the deny cache answers cost none", p.Calls.PerSecond)
}

func (p *Plan) writeCores(w io.Writer) error {
	fmt.Fprintf(w, "\nCores at %s with one descriptor\n", rate(p.Rate))
	table := newTable(w)
	fmt.Fprintln(table, "PROCESS\t64 REQUESTS AT ONCE\tONE AT A TIME")
	for _, row := range []struct {
		name string
		CPU
	}{{"Weir, in memory", p.CPU.WeirInMemory}, {"Weir, on Redis", p.CPU.WeirOnRedis}, {"Redis", p.CPU.Redis}} {
		if row.CPU != (CPU{}) {
			fmt.Fprintf(table, "%s\t%s\t%s\n", row.name, spread(row.Busy), spread(row.Single))
		}
	}
	return table.Flush()
}

func (p *Plan) writeOver(w io.Writer) error {
	fmt.Fprintf(w, "\nAdmitted beyond the limit of one key, at most\n")
	table := newTable(w)
	fmt.Fprintln(table, "DOMAIN\tRULE\tLIMIT\tHEALTHY, ANY WINDOW\tDENY CACHE\tIN MEMORY\tREDIS DOWN\tFAILOVER")
	for i := range p.Limits {
		l := &p.Limits[i]
		window := "no window"
		if l.Over.AnyWindow > 0 {
			window = fmt.Sprintf("+%d", l.Over.AnyWindow-l.Limit)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t+%d\t+%d\t%s\t+%d\n",
			l.Domain, l.path(), l.text(), window, l.Over.DenyCache, l.Over.Memory, l.Over.outage(p.Replicas), l.Over.Failover)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `
HEALTHY, ANY WINDOW: in any interval as long as the window; the windows of fixed_window by themselves are exact
IN MEMORY: %d replicas without Redis, each with counters of its own
REDIS DOWN: in each window, beside the hits that Redis has admitted; "all" with failure_mode_deny: false in Envoy, else nothing
FAILOVER: once, if Redis forgets a key: a failover before replication, or a restart without persistence; all keys: at most %.0f hits
`, p.Replicas, p.FailoverHits)
	return err
}

func (o *Over) outage(replicas int64) string {
	switch {
	case o.Outage == nil:
		return o.Policy + ": all"
	case o.Policy == "local":
		return fmt.Sprintf("local: +%d (%d × %d)", *o.Outage, replicas, o.Share)
	}
	return fmt.Sprintf("%s: +%d", o.Policy, *o.Outage)
}

func (l *LimitPlan) path() string {
	path := l.Path
	if l.Name != "" {
		path += " (" + l.Name + ")"
	}
	if l.Shadow {
		path += " (shadow)"
	}
	return path
}

func (l *LimitPlan) text() string {
	n := strconv.FormatInt(l.Limit, 10)
	if l.Window == 0 {
		return n + " at once"
	}
	return n + " per " + duration(l.Window)
}

func duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// bytesOf formats a range with three digits, in the unit of its larger end.
func bytesOf(r Range) string {
	scale, unit := 1.0, "B"
	for _, larger := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if r.High < 1000*scale {
			break
		}
		scale, unit = scale*1000, larger
	}
	return spread(r.times(1/scale)) + " " + unit
}

func spread(r Range) string {
	low, high := digits(r.Low), digits(r.High)
	if low == high {
		return high
	}
	return low + " to " + high
}

func digits(x float64) string {
	if x == 0 {
		return "0"
	}
	places := max(0, 2-int(math.Floor(math.Log10(x))))
	return strconv.FormatFloat(x, 'f', min(places, 4), 64)
}
