package rulestest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// A path is the path of rules or of an overlay, with its node in the file of the tests.
type path struct {
	text string
	node rulesfile.Node
}

// A parser reads one file of tests.
type parser struct {
	*rulesfile.Document
	suite    *Suite
	domain   string
	requests int64
	lines    map[string]int // each test's line, by name
}

// parse reads a file without its rules. The suite is complete only if the document has no faults.
func parse(f rulesfile.File) *parser {
	d, root := rulesfile.NewDocument(f, page, synonyms)
	p := &parser{Document: d, suite: &Suite{File: f.Name}, lines: map[string]int{}}
	if file, ok := p.Fields(root, fileSchema); ok {
		p.readFile(file)
	}
	return p
}

func (p *parser) readFile(f rulesfile.Fields) {
	p.suite.rules, p.suite.overlay, p.domain = p.readPaths(f, "rules"), p.readPaths(f, "overlay"), f.Text("domain")
	if !f.Has("rules") {
		p.Fault(f.At(), "the file names no rules", "write 'rules: rules.yaml', relative to this file")
	}
	if f.Has("options") {
		if o, ok := p.Fields(f.Value("options"), optionsSchema); ok {
			p.suite.server = decide.Options{
				ShadowMode: o.Bool("shadow_mode"), QuotaMode: o.Bool("quota_mode"),
				AllOrNothing:   o.Bool("stop_cache_key_increment_when_overlimit"),
				CalendarMonths: o.Bool("use_calendar_month_rate_limit"),
			}
			p.suite.merge = o.Bool("merge_domain_config")
		}
	}
	for _, n := range p.readRequiredList(f, "tests", "a test") {
		if test, ok := p.Fields(n, testSchema); ok {
			p.readTest(test)
		}
	}
}

// readRequiredList returns the items of a list. It records a fault if the list is absent or empty.
func (p *parser) readRequiredList(f rulesfile.Fields, name, item string) []rulesfile.Node {
	if !f.Has(name) {
		p.Fault(f.At(), fmt.Sprintf("there are no %s", name), "add '"+name+":'")
		return nil
	}
	v := f.Value(name)
	items := p.Items(v, name)
	if len(items) == 0 && v.IsList() {
		p.Fault(v, fmt.Sprintf("'%s' is empty", name), "add "+item)
	}
	return items
}

// readPaths reads one text or a list of texts.
func (p *parser) readPaths(f rulesfile.Fields, name string) []path {
	if !f.Has(name) {
		return nil
	}
	items := []rulesfile.Node{f.Value(name)}
	if items[0].IsList() {
		items = p.Items(items[0], name)
	}
	var all []path
	for _, n := range items {
		text, ok := p.Item(n, "'"+name+"'")
		if ok && text == "" {
			p.Fault(n, fmt.Sprintf("'%s' has no path", name), "write the path of a file or folder")
		}
		all = append(all, path{text, n})
	}
	return all
}

func (p *parser) readTest(f rulesfile.Fields) {
	t := &Test{Name: f.Text("name"), Line: f.At().Line()}
	switch first := p.lines[t.Name]; {
	case t.Name == "" && !f.Has("name"):
		p.Fault(f.At(), "the test has no name", "add 'name:'")
	case t.Name == "":
		p.Fault(f.Key("name"), "the test has no name", "write what the rules must do")
	case first > 0:
		p.Fault(f.Key("name"), fmt.Sprintf("the test at line %d has the name '%s' too", first, t.Name), "rename one")
	default:
		p.lines[t.Name] = t.Line
	}
	clock := &clock{start: p.readStart(f)}
	clock.now, t.start = clock.start, clock.start
	domain := cmp.Or(f.Text("domain"), p.domain)
	for _, n := range p.readRequiredList(f, "steps", "a step") {
		if step, ok := p.Fields(n, stepSchema); ok {
			t.Steps = append(t.Steps, p.readStep(step, clock, domain))
		}
	}
	p.suite.Tests = append(p.suite.Tests, t)
}

func (p *parser) readStart(f rulesfile.Fields) time.Time {
	if !f.Has("start") {
		return defaultStart
	}
	t, ok := parseInstant(f.Text("start"))
	if !ok || t.Year() < 1980 || t.Year() >= 2180 {
		p.Fault(f.Value("start"), fmt.Sprintf("'start' is %s", f.Value("start")),
			"want a time such as 2026-11-22T10:00:00Z, from 1980 to 2179")
		return defaultStart
	}
	return t
}

// parseInstant parses a time, or a date.
func parseInstant(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t, err = time.Parse(time.DateOnly, text)
	}
	return t.Truncate(time.Microsecond), err == nil
}

// A clock holds the time of the last request.
type clock struct{ start, now time.Time }

func (p *parser) readStep(f rulesfile.Fields, c *clock, domain string) *Step {
	s := &Step{Line: f.At().Line(), Repeat: int(f.Integer("repeat", 1, maxRepeat, 1)), Every: f.Duration("every", maxOffset)}
	if f.Has("every") && s.Repeat == 1 && !f.Has("repeat") {
		p.Fault(f.Key("every"), "'every' has no meaning without 'repeat'", "add 'repeat:'")
	}
	s.At = p.readAt(f, c)
	if s.Every > 0 && int64(s.Repeat-1) > int64(maxOffset/s.Every) {
		p.Fault(f.Key("every"),
			fmt.Sprintf("the last request of the step is more than %.0fh after the start of the test", maxOffset.Hours()),
			"repeat less often")
	} else {
		c.now = s.At.Add(time.Duration(s.Repeat-1) * s.Every)
	}
	if c.now.Sub(c.start) > maxOffset {
		p.Fault(f.At(), fmt.Sprintf("the step is more than %.0fh after the start of the test", maxOffset.Hours()), "correct its time")
		c.now = c.start
	}
	p.requests += int64(s.Repeat)
	if p.requests > maxRequests && p.requests-int64(s.Repeat) <= maxRequests {
		p.Fault(f.At(), fmt.Sprintf("the steps of the file have more than %d requests", maxRequests),
			"repeat less often, or split the file")
	}
	if !f.Has("request") {
		p.Fault(f.At(), "the step has no request", "add 'request: key=value'")
	} else {
		s.request = p.readRequest(f.Value("request"))
		s.request.Domain = cmp.Or(s.request.Domain, domain)
	}
	s.Text = formatRequest(&s.request, domain)
	for i := range s.request.Descriptors {
		for _, e := range s.request.Descriptors[i].Entries {
			s.numbered = s.numbered || strings.Contains(e.Value, number)
		}
	}
	if !f.Has("expect") {
		p.Fault(f.At(), "the step expects nothing", "add 'expect: allowed' or 'expect: denied'")
	} else {
		s.want = p.readExpectation(f.Value("expect"), s)
	}
	return s
}

// readAt returns the time of the first request of a step.
func (p *parser) readAt(f rulesfile.Fields, c *clock) time.Time {
	if f.Has("at") && f.Has("after") {
		p.Fault(f.Key("after"), "a step has 'at' or 'after', and both are given", "remove one of them")
		return c.now
	}
	if !f.Has("at") {
		return c.now.Add(f.Duration("after", maxOffset))
	}
	at, isInstant := parseInstant(f.Text("at"))
	if !isInstant {
		at = c.start.Add(f.Duration("at", maxOffset))
	}
	if at.Before(c.now) {
		p.Fault(f.Value("at"), fmt.Sprintf("the step is %v earlier than the one before", c.now.Sub(at)),
			"put the steps in the order of their times")
		return c.now
	}
	return at
}

func (p *parser) readRequest(n rulesfile.Node) decide.Request {
	if !n.IsMap() {
		return decide.Request{Descriptors: p.readDescriptors(n, "request", decide.Descriptor{Hits: 1})}
	}
	f, ok := p.Fields(n, requestSchema)
	if !ok {
		return decide.Request{}
	}
	if !f.Has("descriptors") {
		p.Fault(n, "the request has no descriptors", "add 'descriptors:', or write the request as key=value")
		return decide.Request{}
	}
	return decide.Request{Domain: f.Text("domain"), Descriptors: p.readDescriptors(f.Value("descriptors"), "descriptors", p.readHits(f, decide.Descriptor{Hits: 1}))}
}

// readHits returns d with the hits of f, or with its own where f has none.
func (p *parser) readHits(f rulesfile.Fields, d decide.Descriptor) decide.Descriptor {
	d.Hits = f.Integer("hits", 0, maxHits, d.Hits)
	if f.Has("is_negative_hits") {
		d.Refund = f.Bool("is_negative_hits")
	}
	return d
}

// readDescriptors reads one descriptor or a list. Each has the hits of d by default.
func (p *parser) readDescriptors(n rulesfile.Node, name string, d decide.Descriptor) []decide.Descriptor {
	if !n.IsList() {
		return []decide.Descriptor{p.readDescriptor(n, name, d)}
	}
	var all []decide.Descriptor
	for _, item := range p.Items(n, name) {
		all = append(all, p.readDescriptor(item, "a descriptor", d))
	}
	if len(all) == 0 || len(all) > decide.MaxDescriptors {
		p.Fault(n, fmt.Sprintf("%s has %d descriptors", name, len(all)), fmt.Sprintf("want 1 to %d descriptors", decide.MaxDescriptors))
	}
	return all
}

func (p *parser) readDescriptor(n rulesfile.Node, name string, d decide.Descriptor) decide.Descriptor {
	entries := n
	if n.IsMap() {
		f, ok := p.Fields(n, descriptorSchema)
		if !ok {
			return d
		}
		d = p.readHits(f, d)
		d.Override = p.readLimit(f)
		entries = f.Value("entries")
		if !f.Has("entries") {
			p.Fault(n, "the descriptor has no entries", "add 'entries: key=value'")
			return d
		}
		name = "'entries'"
	}
	text, ok := p.Item(entries, name)
	if !ok {
		return d
	}
	if text == "" && name == "request" {
		p.Fault(entries, "the request is empty", "want key=value")
	}
	var err error
	d.Entries, err = descriptors.ParseEntries(text)
	if err != nil {
		p.Fault(entries, err.Error(), "")
	}
	if len(d.Entries) > decide.MaxEntries {
		p.Fault(entries, fmt.Sprintf("the descriptor has %d entries", len(d.Entries)), fmt.Sprintf("write at most %d", decide.MaxEntries))
	}
	if d.Refund {
		d.Hits = -d.Hits
	}
	return d
}

// readLimit reads the limit that a descriptor carries, or returns nil.
func (p *parser) readLimit(f rulesfile.Fields) *decide.Override {
	if !f.Has("limit") {
		return nil
	}
	l, ok := p.Fields(f.Value("limit"), limitSchema)
	if !ok {
		return nil
	}
	for _, name := range []string{"requests_per_unit", "unit"} {
		if !l.Has(name) {
			p.Fault(l.At(), fmt.Sprintf("the limit has no %s", name), "add it")
		}
	}
	return &decide.Override{
		RequestsPerUnit: uint32(l.Integer("requests_per_unit", 0, 1<<32-1, 0)),
		Unit:            descriptors.ParseUnit(l.Choice("unit", descriptors.UnitNames()...)),
		UnitMultiplier:  uint32(l.Integer("unit_multiplier", 1, 1<<32-1, 1)),
	}
}

// formatRequest returns a request in the syntax of a file, on one line. It omits the domain if it
// is the given one.
func formatRequest(r *decide.Request, domain string) string {
	parts := make([]string, len(r.Descriptors))
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		parts[i] = descriptors.EntriesText(d.Entries)
		switch {
		case d.Refund:
			parts[i] += fmt.Sprintf(" (%d hits, is_negative_hits)", -d.Hits)
		case d.Hits != 1:
			parts[i] += fmt.Sprintf(" (%d hits)", d.Hits)
		}
	}
	text := strings.Join(parts, " and ")
	if r.Domain != domain {
		text += ", domain " + r.Domain
	}
	return text
}

// number is the text in a value that stands for the number of the request in its step, from 1.
const number = "{n}"

// numberedDescriptors returns descriptors whose values contain the number of a request.
func numberedDescriptors(all []decide.Descriptor, n int) []decide.Descriptor {
	all = slices.Clone(all)
	for i := range all {
		entries := slices.Clone(all[i].Entries)
		for j := range entries {
			entries[j].Value = strings.ReplaceAll(entries[j].Value, number, strconv.Itoa(n))
		}
		all[i].Entries = entries
	}
	return all
}
