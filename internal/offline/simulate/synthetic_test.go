package simulate_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/recording"
)

const someRules = `
domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - key: action
        value: post
        rate_limit: {unit: minute, requests_per_unit: 5}
`

func synthetic(t testing.TB, description string) []recording.Line {
	t.Helper()
	s, err := simulate.ParseSynthetic(description, rulesfiletest.Parse(t, someRules))
	must.Succeed(t, err)
	var all []recording.Line
	for {
		var line recording.Line
		if err := s.Next(&line); errors.Is(err, io.EOF) {
			return all
		}
		all = append(all, line)
	}
}

// users returns the number of requests of each user.
func users(all []recording.Line) map[string]int {
	counts := map[string]int{}
	for _, l := range all {
		counts[l.Request.Descriptors[0].Entries[0].Value]++
	}
	return counts
}

func TestSyntheticLoadIsDeterministic(t *testing.T) {
	t.Parallel()
	const load = "poisson rate=20 users=50 zipf=1.1 duration=10m seed=7 descriptor=user_id={user},action={a|b} + burst size=10 every=1m"
	one, same, other := synthetic(t, load), synthetic(t, load), synthetic(t, strings.Replace(load, "seed=7", "seed=8", 1))
	if !reflect.DeepEqual(one, same) {
		t.Error("the same description made two loads")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("two seeds made one load")
	}
	for i := 1; i < len(one); i++ {
		if one[i].At.Before(one[i-1].At) {
			t.Fatalf("request %d is earlier than the one before", i)
		}
	}
}

func TestSyntheticLoadHasItsShape(t *testing.T) {
	t.Parallel()
	between := func(what string, got, low, high int) {
		t.Helper()
		if got < low || got > high {
			t.Errorf("%s: %d, want %d to %d", what, got, low, high)
		}
	}
	all := synthetic(t, "poisson rate=50 users=1000 zipf=1.1 duration=20m")
	between("requests in 20 minutes at 50 a second", len(all), 59_000, 61_000)
	counts := users(all)
	between("requests of the first user under zipf", counts["user1"], len(all)*15/100, len(all)*22/100)
	if d := all[0].Request.Descriptors[0]; all[0].Request.Domain != "ugc" || d.Entries[0].Key != "user_id" || d.Entries[1].Value != "post" || d.Hits != 1 {
		t.Errorf("by default a request is under the first rule: %+v", all[0].Request)
	}
	between("users without zipf", len(users(synthetic(t, "steady rate=50 users=100 duration=1m"))), 100, 100)
	between("requests at a steady rate", len(synthetic(t, "steady rate=50 duration=1m")), 3000, 3000)
	bursts := synthetic(t, "burst size=7 every=10s width=100ms duration=1m")
	between("requests of 6 bursts", len(bursts), 42, 42)
	if gap := bursts[6].At.Sub(bursts[0].At); gap >= 100*time.Millisecond {
		t.Errorf("a burst takes %v", gap)
	}
	slow := synthetic(t, "burst size=100 every=80000h width=80000h duration=80000h")
	if between("requests of the slow burst", len(slow), 100, 100); len(slow) == 100 && slow[99].At.Sub(slow[0].At) != 79200*time.Hour {
		t.Errorf("the slow burst takes %v", slow[99].At.Sub(slow[0].At))
	}
	day := synthetic(t, "daily rate=1 swing=1 peak=20h duration=24h")
	between("requests of a day", len(day), 86_400*98/100, 86_400*102/100)
	evening, morning := 0, 0
	for _, l := range day {
		switch l.At.Hour() {
		case 20:
			evening++
		case 8:
			morning++
		}
	}
	between("requests in the hour after the peak", evening, 6_700, 7_500)
	between("requests in the hour opposite", morning, 0, 120)
	mixed := synthetic(t, "steady rate=1 key=user_id + attacker rate=100 from=10m for=1m")
	between("requests of the attacker", users(mixed)["attacker"], 6000, 6000)
	between("all requests", len(mixed), 9600, 9600)
}

func TestInvalidSyntheticLoadsAreFaults(t *testing.T) {
	t.Parallel()
	rules := rulesfiletest.Parse(t, someRules)
	for description, want := range map[string]string{
		"":                                   "load 1: the shape is missing: want one of poisson",
		"poison":                             `load 1: unknown shape "poison"`,
		"poisson rte=1":                      `did you mean "rate"?`,
		"poisson rate":                       `"rate" is not a field: want name=value`,
		"poisson rate=0":                     "rate=0: want requests a second",
		"poisson rate=NaN":                   "rate=NaN: want requests a second",
		"poisson rate=1 rate=2":              "rate is given twice",
		"burst rate=1":                       `burst has no field "rate"`,
		"poisson users=0":                    "users=0: want a number of users",
		"poisson duration=5":                 "duration=5: want a duration",
		"poisson start=yesterday":            "start=yesterday: want a time",
		"poisson rate=1000000 duration=240h": "it makes some",
		"poisson descriptor=user_id":         "has no key and value",
		"poisson descriptor=user_id={usr}":   "{usr} in descriptor is unknown",
		"poisson descriptor=user_id={user":   "has no '}'",
		"poisson + ":                         "load 2: the shape is missing",
		"poisson domain=other":               "no rule of the domain has a limit",
		"burst every=1s width=2s":            "width is longer than every",
		"poisson + attacker from=1h":         "load 2: from=1h0m0s is not before the end of the load, duration=1h0m0s",
	} {
		if _, err := simulate.ParseSynthetic(description, rules); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want the error %s", description, err, want)
		}
	}
	deep := "domain: d\n"
	for level := range 65 {
		deep += strings.Repeat("  ", level) + "descriptors:\n" + strings.Repeat("  ", level) + "- key: k\n"
	}
	deep += strings.Repeat("  ", 65) + "rate_limit: {unit: minute, requests_per_unit: 5}\n"
	if _, err := simulate.ParseSynthetic("steady", rulesfiletest.Parse(t, deep)); err == nil || !strings.Contains(err.Error(), "more keys than a descriptor") {
		t.Errorf("a rule with 65 keys: error %v", err)
	}
}

// No description makes the parser or the first requests fail otherwise than with an error, and no
// request is earlier than the one before.
func FuzzSynthetic(f *testing.F) {
	for _, text := range []string{
		"poisson rate=50 users=10 zipf=1.1", "burst size=7 every=10s width=1s + attacker from=1m for=1s rate=9", "daily swing=1 peak=20h rate=0.1",
		"steady rate=1e-6 descriptor=a={x|y}{user},b= hits=-3 start=2189-12-31T00:00:00Z duration=87600h", "poisson descriptor={user}={user}",
	} {
		f.Add(text)
	}
	rules := rulesfiletest.Parse(f, someRules)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := simulate.ParseSynthetic(text, rules)
		if err != nil {
			return
		}
		var all lines
		for range 200 {
			var line recording.Line
			if err := s.Next(&line); err != nil {
				break
			}
			if n := len(all); n > 0 && line.At.Before(all[n-1].At) {
				t.Fatalf("%q: %v after %v", text, line.At, all[n-1].At)
			}
			all = append(all, line)
		}
		n := int64(len(all))
		r, err := simulate.Run(context.Background(), rules, &all, simulate.Options{})
		if err != nil || r.Requests != n || r.Allowed+r.Denied+r.Failed != n {
			t.Fatalf("%q: got error %v, %+v, want %d requests, each allowed, denied or failed", text, err, r, n)
		}
	})
}

// A value of a rule may have the characters that separate the entries and words of a descriptor.
func TestDefaultDescriptorHasTheValuesOfTheRule(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"a,b": "a,b", "a,b=c": "a,b=c", "{user}": "{user}", "{a|b}": "{a|b}", "a{": "a{", "a*": "auser"} {
		rules := rulesfiletest.Parse(t, "domain: d\ndescriptors: [{key: k, value: '"+value+"', rate_limit: {unit: minute, requests_per_unit: 5}}]\n")
		s, err := simulate.ParseSynthetic("steady", rules)
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		var line recording.Line
		must.Succeed(t, s.Next(&line))
		if got := line.Request.Descriptors[0].Entries; len(got) != 1 || got[0].Key != "k" || !strings.HasPrefix(got[0].Value, want) {
			t.Errorf("%s: entries %v, want one that begins with %s", value, got, want)
		}
	}
}
