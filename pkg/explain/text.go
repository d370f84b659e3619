package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	width         = 80  // columns of a line, as far as its words allow
	maxShownBytes = 200 // bound on a text from the request or the rules
)

// shown returns a text of a request or of rules: bounded, and without control characters, which
// could drive a terminal.
func shown(text string) string { return printable(descriptors.TruncateWithHash(text, maxShownBytes)) }

func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}

// located returns "name (rules.yaml:12)", or the name if the source is unknown.
func located(name, source string) string {
	if source == "" {
		return name
	}
	return name + " (" + source + ")"
}

func (e Entry) String() string { return e[0] + "=" + e[1] }

// summary returns the walk and the result in one line, such as
//
//	user_id=bigco (rules.yaml:11) → action=login: no rule below → NO LIMIT
func (d *Descriptor) summary() string {
	var parts []string
	for _, s := range d.Walk {
		if s.Result == matched {
			parts = append(parts, located(shown(s.Descriptor), s.Source))
		} else {
			parts = append(parts, shown(s.Entry.String())+": "+s.brief)
		}
	}
	return strings.Join(append(parts, d.resultText()), " → ")
}

// resultText returns the result in a few words.
func (d *Descriptor) resultText() string {
	switch {
	case d.Result == limited && len(d.Limits) == 0: // a refund of 0 hits
		return "ALLOWED"
	case d.Result == limited:
		rates := make([]string, len(d.Limits))
		for i := range d.Limits {
			rates[i] = d.Limits[i].rate()
		}
		return "LIMIT " + strings.Join(rates, " and ")
	case d.Unlimited:
		return "UNLIMITED"
	case d.covered():
		return strings.ToUpper(d.Result)
	case d.Result == decide.BadLeaseID.String():
		return "DENIED"
	}
	return "NO LIMIT"
}

func (l *Limit) rate() string {
	return descriptors.RateText(l.RequestsPerUnit, l.UnitMultiplier, l.Unit)
}

// A painter writes lines of at most width columns, with colors if they are on.
type painter struct {
	strings.Builder
	color bool
}

const (
	bold   = "1"
	red    = "1;31"
	green  = "1;32"
	yellow = "33"
	dim    = "2"
	plain  = "0"
)

func (p *painter) paint(color, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// words splits a text at each space, so that a value with two spaces keeps both.
func words(text string) []string { return strings.Split(strings.TrimRight(text, " "), " ") }

// wrap writes a text in lines. The first line begins with first, and all others with rest.
func (p *painter) wrap(color, first, rest, text string) {
	p.lines(color, first, rest, words(printable(text)))
}

// summary writes a summary in lines. It breaks lines before arrows, and within a part only if the
// part is too long.
func (p *painter) summary(color, text string) {
	var all []string
	for i, part := range strings.Split(printable(text), " → ") {
		if i > 0 {
			part = "→ " + part
		}
		if utf8.RuneCountInString(part) <= width-2 {
			all = append(all, part)
		} else {
			all = append(all, words(part)...)
		}
	}
	p.lines(color, "", "  ", all)
}

func (p *painter) lines(color, first, rest string, words []string) {
	prefix, line, columns := first, "", utf8.RuneCountInString(first)
	flush := func() { p.WriteString(prefix + p.paint(color, line) + "\n") }
	for _, word := range words {
		size := utf8.RuneCountInString(word)
		if line != "" && columns+1+size > width {
			flush()
			prefix, line, columns = rest, "", utf8.RuneCountInString(rest)
		}
		if line != "" {
			line, columns = line+" ", columns+1
		}
		line, columns = line+word, columns+size
	}
	flush()
}

// Text returns e for people, as a tree in lines of 80 columns. Color is for terminals only.
func (e *Explanation) Text(color bool) string {
	p := &painter{color: color}
	known := ""
	if !e.DomainKnown {
		known = ", which no rules have"
	}
	p.wrap(dim, "", "  ", fmt.Sprintf("domain %s%s, rules version %s", shown(e.Domain), known, e.RulesVersion))
	if e.Error != "" {
		p.wrap(red, "", "  ", "a server rejects the request: "+shown(e.Error))
	}
	if e.Envoy != nil {
		p.envoy(e.Envoy)
	}
	for i := range e.Descriptors {
		p.WriteString("\n")
		p.descriptor(i+1, &e.Descriptors[i])
	}
	return p.String()
}

func (p *painter) descriptor(number int, d *Descriptor) {
	names := make([]string, len(d.Entries))
	for i, e := range d.Entries {
		names[i] = shown(e.String())
	}
	p.wrap(bold, "", "  ", fmt.Sprintf("descriptor %d: %s", number, strings.Join(names, ", ")))
	for i := range d.Walk {
		p.step(&d.Walk[i], i == len(d.Walk)-1)
	}
	color := green
	if !d.covered() {
		color = red
	}
	p.summary(color, d.Summary)
	for i := range d.Limits {
		p.limit(&d.Limits[i])
	}
	if n := len(d.Walk); d.Reason != limitedReason && !d.Unlimited && (n == 0 || d.Reason != d.Walk[n-1].Reason) {
		p.wrap(plain, "  ", "  ", d.Reason)
	}
}

func (p *painter) step(s *Step, last bool) {
	branch, below := "├─ ", "│  "
	if last {
		branch, below = "└─ ", "   "
	}
	color, line := green, shown(s.Entry.String())+": matched "+located(shown(s.Descriptor), s.Source)
	if s.Result != matched {
		color, line = red, shown(s.Entry.String())+": no match"
	}
	p.wrap(color, branch, below, line)
	p.wrap(plain, below, below, s.Reason)
}

func (p *painter) limit(l *Limit) {
	const pad = "  "
	line := l.rate() + ", " + l.Algorithm + ", " + l.Mode
	if l.Name != "" {
		line += ", named " + shown(l.Name)
	}
	if l.Override {
		line += ", from the request"
	}
	if l.OverlaySource != "" {
		line += ", with keys from " + l.OverlaySource
	}
	p.wrap(bold, pad, pad+"  ", line)
	if text := parametersText(l.Parameters); text != "" {
		p.wrap(plain, pad+"  ", pad+"    ", text)
	}
	p.wrap(dim, pad+"  key  ", pad+"       ", shown(l.Key))
	if l.KeyHash != l.Key {
		p.wrap(dim, pad+"  key hash ", pad+"       ", l.KeyHash)
	}
	if l.Hash != "" {
		p.wrap(dim, pad+"  limit hash ", pad+"       ", l.Hash)
	}
	if l.State != nil {
		s := l.State.Rounded()
		text := fmt.Sprintf("used %d, remaining %d, retry after %s, reset after %s", s.Used, s.Remaining, s.RetryAfter, s.ResetAfter)
		if s.Penalty != "" && s.Penalty != "0s" {
			text += ", penalty for " + s.Penalty
		}
		p.wrap(yellow, pad+"  now  ", pad+"       ", text)
	}
}

// parametersText returns parameters as "penalty after=3 for=1h0m0s, capacity=5", sorted by key.
func parametersText(parameters map[string]any) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		inner, isObject := parameters[key].(map[string]any)
		switch {
		case isObject:
			text := key
			for _, name := range slices.Sorted(maps.Keys(inner)) {
				text += " " + name + "=" + parameterText(inner[name])
			}
			all = append(all, text)
		case key != "concurrent_requests":
			all = append(all, key+"="+parameterText(parameters[key]))
		}
	}
	return strings.Join(all, ", ")
}

// parameterText returns a parameter as it is in rules. JSON makes a float64 of each number.
func parameterText(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
