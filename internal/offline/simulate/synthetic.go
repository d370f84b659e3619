package simulate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// A Synthetic is a [LineReader] that makes a load from a description. Equal descriptions make equal
// requests.
type Synthetic struct {
	description, added string
	loads              []*load
}

// A load makes the requests of one part of a description.
type load struct {
	loadFields
	random *rand.Rand
	upTo   []float64     // under zipf, the fraction of the requests of the users up to each one
	next   time.Duration // since start; negative: the load has ended
	made   int64         // requests
}

// ParseSynthetic reads a description of a load:
//
//	poisson rate=50 users=1000 zipf=1.1 duration=1h seed=1 descriptor=user_id={user},action={login|post}
//
// A load consists of a shape and fields; " + " joins several loads. A further load takes domain,
// descriptor, start, duration and seed from the first one, unless it sets them. The domain and
// descriptor default to those of the first rule with a limit. docs/simulate.md lists shapes and
// fields.
func ParseSynthetic(description string, rules *descriptors.Rules) (*Synthetic, error) {
	s := &Synthetic{description: strings.Join(strings.Fields(description), " ")}
	var first *loadFields
	for i, text := range strings.Split(" "+s.description+" ", " + ") {
		fields, err := parseLoad(text, first)
		if err == nil && first == nil {
			first = fields
			err = s.complete(first, rules)
		}
		if err == nil {
			err = fields.check()
		}
		if err != nil {
			return nil, fmt.Errorf("load %d: %w", i+1, err)
		}
		l := &load{loadFields: *fields, random: rand.New(rand.NewPCG(fields.seed, uint64(i)))}
		if l.zipf > 0 {
			l.upTo = zipfSums(l.users, l.zipf)
		}
		l.next = l.from
		l.advance()
		s.loads = append(s.loads, l)
	}
	return s, nil
}

// complete sets a missing domain and descriptor of the first load from the first rule with a limit.
func (s *Synthetic) complete(l *loadFields, rules *descriptors.Rules) error {
	if l.domain != "" && l.descriptors != nil {
		return nil
	}
	for rule := range rules.All() {
		if len(rule.Limits) == 0 || l.domain != "" && l.domain != rule.Domain {
			continue
		}
		if l.domain == "" {
			l.domain = rule.Domain
			s.added += " domain=" + rule.Domain
		}
		if l.descriptors == nil {
			text, entries := templateOf(rule)
			if len(entries) > decide.MaxEntries {
				return fmt.Errorf("the first rule, %s, has more keys than a descriptor may have: add descriptor=KEY={user}", rule.Name)
			}
			l.descriptors = [][]template{entries}
			s.added += " descriptor=" + text
		}
		return nil
	}
	return errors.New("no rule of the domain has a limit: add domain=NAME and descriptor=KEY={user}")
}

// templateOf returns a descriptor that reaches a rule, as text and as templates. It has the values
// of the rule, and {user} where the rule matches any value.
func templateOf(rule *descriptors.Rule) (text string, all []template) {
	for i, n := range rule.Path() {
		value := n.Value
		switch {
		case len(n.Values) > 0:
			value = n.Values[0]
		case len(n.Prefixes) > 0:
			value = n.Prefixes[0].Addr().String()
		case value == "":
			value = "*"
		}
		t := template{key: strings.ReplaceAll(n.Key, "*", "x")}
		for j, constant := range strings.Split(value, "*") {
			if j > 0 {
				t.parts = append(t.parts, part{user: true})
			}
			if constant != "" {
				t.parts = append(t.parts, part{text: constant})
			}
		}
		if i > 0 {
			text += ","
		}
		text += t.key + "=" + strings.ReplaceAll(value, "*", "{user}")
		all = append(all, t)
	}
	return text, all
}

// String returns the description, with the defaults that the rules gave.
func (s *Synthetic) String() string { return s.description + s.added }

// Next writes the next request to into. The error is [io.EOF] at the end.
func (s *Synthetic) Next(into *recording.Line) error {
	var first *load
	for _, l := range s.loads {
		if l.next >= 0 && (first == nil || l.start.Add(l.next).Before(first.start.Add(first.next))) {
			first = l
		}
	}
	if first == nil {
		return io.EOF
	}
	*into = recording.Line{At: first.start.Add(first.next).Truncate(time.Microsecond), Request: first.request()}
	first.advance()
	return nil
}

// advance finds the time of the next request.
func (l *load) advance() {
	end := l.from + l.length
	switch l.shape {
	case "steady", "attacker":
		l.next = l.from + time.Duration(float64(l.made)/l.rate*float64(time.Second))
	case "burst":
		i, size := time.Duration(l.made%l.size), time.Duration(l.size)
		l.next = l.from + time.Duration(l.made/l.size)*l.every + l.width/size*i + l.width%size*i/size // i*l.width may overflow
	case "poisson":
		l.next += l.gap(l.rate)
	case "daily":
		// Thinning: make arrivals at the highest rate, and keep a share of them.
		for highest := l.rate * (1 + l.swing); ; {
			l.next += l.gap(highest)
			if l.next >= end || l.random.Float64()*highest < l.dailyRate(l.next) {
				break
			}
		}
	}
	l.made++
	if l.next >= end {
		l.next = -1
	}
}

// gap returns a random time between two arrivals of a Poisson process.
func (l *load) gap(rate float64) time.Duration {
	return time.Duration(-math.Log(1-l.random.Float64()) / rate * float64(time.Second))
}

// dailyRate returns the rate at a time since the start.
func (l *load) dailyRate(at time.Duration) float64 {
	ofDay := l.start.Add(at).Sub(l.start.Add(at).Truncate(24*time.Hour)) - l.peak
	return l.rate * (1 + l.swing*math.Cos(2*math.Pi*ofDay.Hours()/24))
}

func (l *load) request() decide.Request {
	user := 0
	switch {
	case l.upTo != nil:
		user = sort.SearchFloat64s(l.upTo, l.random.Float64())
	case l.users > 1:
		user = l.random.IntN(l.users)
	}
	name := l.prefix
	if l.users > 1 {
		name += strconv.Itoa(user + 1)
	}
	r := decide.Request{Domain: l.domain, Descriptors: make([]decide.Descriptor, len(l.descriptors))}
	for i, entries := range l.descriptors {
		d := decide.Descriptor{Hits: l.hits, Refund: l.hits < 0, Entries: make([]descriptors.Entry, len(entries))}
		for j, e := range entries {
			d.Entries[j] = descriptors.Entry{Key: e.key, Value: e.value(name, l.random)}
		}
		r.Descriptors[i] = d
	}
	return r
}

// zipfSums returns, for each of n users, the fraction of requests of the users up to it: user i has
// the weight i^-exponent.
func zipfSums(n int, exponent float64) []float64 {
	sums, total := make([]float64, n), 0.0
	for i := range sums {
		total += math.Pow(float64(i+1), -exponent)
		sums[i] = total
	}
	for i := range sums {
		sums[i] /= total
	}
	sums[n-1] = 1
	return sums
}

// A template is an entry of a descriptor. Its value consists of texts and, between them, the name
// of the user or one of several words.
type template struct {
	key   string
	parts []part
}

type part struct {
	text  string   // "" with words
	user  bool     // the name of the user
	words []string // one of these, at random
}

func (t *template) value(user string, random *rand.Rand) string {
	if len(t.parts) == 1 && t.parts[0].user {
		return user
	}
	var b strings.Builder
	for _, p := range t.parts {
		switch {
		case p.user:
			b.WriteString(user)
		case p.words != nil:
			b.WriteString(p.words[random.IntN(len(p.words))])
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// parseTemplates reads a descriptor such as user_id={user},action={login|post}.
func parseTemplates(text string) ([]template, error) {
	var all []template
	for entry := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(entry, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("the entry %q of descriptor has no key and value: write descriptor=user_id={user}", entry)
		}
		t := template{key: key}
		for value != "" {
			before, rest, open := strings.Cut(value, "{")
			if before != "" {
				t.parts = append(t.parts, part{text: before})
			}
			if !open {
				break
			}
			inner, after, closed := strings.Cut(rest, "}")
			if !closed {
				return nil, fmt.Errorf("the entry %q of descriptor has no '}'", entry)
			}
			if words := strings.Split(inner, "|"); inner == "user" {
				t.parts = append(t.parts, part{user: true})
			} else if len(words) > 1 {
				t.parts = append(t.parts, part{words: words})
			} else {
				return nil, fmt.Errorf("{%s} in descriptor is unknown: write {user}, or words such as {login|post}", inner)
			}
			value = after
		}
		all = append(all, t)
	}
	if len(all) > decide.MaxEntries {
		return nil, errors.New("descriptor has too many entries")
	}
	return all, nil
}
