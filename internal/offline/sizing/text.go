package sizing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
)

// Text returns l for people.
func (l *LocalLimit) Text() string {
	if l.Replicas == 1 {
		return fmt.Sprintf("Local limit: %d requests in a window. One replica counts all requests, so its local limit is the whole limit.\n"+
			"Set --replicas to the number of replicas that share the limit.\n", l.Requests)
	}
	rows := []string{"LOCAL LIMIT\tCHOICE\tONE REPLICA EXCEEDS IT\tANY REPLICA EXCEEDS IT\tFALSELY DENIED\tTOGETHER\tOVER"}
	for _, c := range []struct {
		choice string
		*LocalChoice
	}{{"equal part", &l.EqualPart}, {"one replica", &l.One}, {"any replica", &l.Any}} {
		over := fmt.Sprintf("+%d (%.2f times)", c.Over, float64(c.Together)/float64(l.Requests))
		rows = append(rows, terminal.Row(c.Limit, c.choice, probability(c.OneExceeds, c.OneExceeds),
			probability(c.AnyExceedsLow, c.AnyExceeds), fmt.Sprintf("%.3g %%", 100*c.Denied), c.Together, over))
	}
	return fmt.Sprintf(`Local limit: %d requests in a window, %d replicas that each count by themselves, false-limit probability %g

%s
one replica: the smallest limit that a given replica exceeds with a probability of at most %[3]g
any replica: the same for the first replica that exceeds it; on_store_error: local uses this choice
TOGETHER: the most that all replicas admit in a window, if the requests do not spread evenly
`, l.Requests, l.Replicas, l.Probability, terminal.Table(rows...))
}

func probability(low, high float64) string {
	a, b := fmt.Sprintf("%.3g", low), fmt.Sprintf("%.3g", high)
	if a == b {
		return a
	}
	return a + " to " + b
}

// Text returns r for people.
func (r *Report) Text() string {
	rows := []string{"DOMAIN\tRULE\tLIMIT\tALGORITHM\tKEYS\tIN WEIR'S MEMORY\tON REDIS"}
	for _, l := range r.Limits {
		rows = append(rows, terminal.Row(l.Domain, l.path(), l.text(), l.Algorithm, fmt.Sprintf("%.0f", l.Keys), bytesOf(l.MemoryBytes),
			bytesOf(l.RedisBytes)))
	}
	rows = append(rows, fmt.Sprintf("all\t\t\t\t%.0f\t%s\t%s", r.Keys, bytesOf(r.MemoryBytes), bytesOf(r.RedisBytes)))
	text := fmt.Sprintf("Plan: %d users, %s, %d replicas, false-limit probability %g\n\nMemory of the keys, at most\n%s", r.Users,
		rate(r.Rate), r.Replicas, r.Probability, terminal.Table(rows...)) +
		fmt.Sprintf("\nRedis calls: at most %g for each request with one descriptor; %s\n", r.Calls.PerRequest, r.callRate())
	if r.Rate > 0 {
		text += r.coresText()
	}
	return text + r.overText() + "\nMeasured on\n  " + strings.Join(Figures().Machines, "\n  ") + "\n"
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "an unknown rate"
	}
	return fmt.Sprintf("%g requests a second", perSecond)
}

func (r *Report) callRate() string {
	if r.Rate == 0 {
		return "set --rate for the calls a second"
	}
	text := fmt.Sprintf("at most %g a second to one Redis. Denied requests that the deny cache answers cost none", r.Calls.PerSecond)
	if r.leases {
		text += ". A request that is denied or canceled after it has opened leases costs 1 more"
	}
	return text
}

func (r *Report) coresText() string {
	rows := []string{"PROCESS\t64 REQUESTS AT ONCE\tONE AT A TIME"}
	for _, row := range []struct {
		name string
		CPU
	}{{"Weir, in memory", r.CPU.WeirInMemory}, {"Weir, on Redis", r.CPU.WeirOnRedis}, {"Redis", r.CPU.Redis}} {
		if row.CPU != (CPU{}) {
			rows = append(rows, terminal.Row(row.name, spread(row.Busy), spread(row.Single)))
		}
	}
	return fmt.Sprintf("\nCores at %s with one descriptor\n%s", rate(r.Rate), terminal.Table(rows...))
}

func (r *Report) overText() string {
	rows := []string{"DOMAIN\tRULE\tLIMIT\tHEALTHY, ANY WINDOW\tDENY CACHE\tIN MEMORY\tREDIS DOWN\tFAILOVER"}
	beyond := func(hits int64) string { return fmt.Sprintf("+%d", hits) }
	for _, l := range r.Limits {
		window := "no window"
		if l.Window > 0 {
			window = beyond(l.Over.AnyWindow - l.Limit)
		}
		rows = append(rows, terminal.Row(l.Domain, l.path(), l.text(), window, beyond(l.Over.DenyCache), beyond(l.Over.Memory),
			l.Over.outage(r.Replicas), beyond(l.Over.Failover)))
	}
	return fmt.Sprintf(`
Admitted beyond the limit of one key, at most
%s
HEALTHY, ANY WINDOW: in any interval as long as the window. For calendar windows, the interval is as long as the shortest window. Within one of its own windows, a fixed_window never exceeds its limit.
IN MEMORY: in each window, if each of %d replicas counts in its own memory.
REDIS DOWN: in each window, in addition to the hits that Redis admitted. "all": every hit if Envoy has failure_mode_deny: false, otherwise none.
FAILOVER: once for each key that Redis loses in a failover or in a restart without persistence. %s
`, terminal.Table(rows...), r.Replicas, r.failoverText())
}

func (r *Report) failoverText() string {
	if r.FailoverHits == nil {
		return "Set --rate for the hits of all keys that a failover loses."
	}
	return fmt.Sprintf("A failover loses at most %.0f hits of all keys together.", *r.FailoverHits)
}

func (o *Over) outage(replicas int64) string {
	switch {
	case o.Outage == nil:
		return o.OnStoreError + ": all"
	case o.OnStoreError == "local":
		return fmt.Sprintf("local: +%d (%d × %d)", *o.Outage, replicas, *o.Outage/replicas)
	}
	return fmt.Sprintf("%s: +%d", o.OnStoreError, *o.Outage)
}

func (l *LimitReport) path() string {
	path := l.Path
	if l.Name != "" {
		path += " (" + l.Name + ")"
	}
	if l.Shadow {
		path += " (shadow)"
	}
	return path
}

func (l *LimitReport) text() string {
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
