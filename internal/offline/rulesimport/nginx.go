package rulesimport

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Nginx reads the limits of a configuration of nginx: limit_req and limit_conn with their zones.
// domain is the domain of the rules.
func Nginx(name string, data []byte, domain string) (*Imported, error) {
	tree, err := readNginx(name, data)
	if err != nil {
		return nil, err
	}
	p := &nginx{Imported: &Imported{name: name}, zones: map[string]*zone{}}
	p.domain = p.addDomain(cmp.Or(domain, "nginx"))
	p.readZones(tree)
	p.nameConstants()
	p.readScope(&scope{name: "the file", zones: map[string][]*zone{}, dryRun: map[string]bool{}}, tree)
	p.addZones()
	p.addExemptions()
	p.noteGroups()
	if len(p.domain.rules.Children) == 0 && len(p.Problems) == 0 {
		return nil, fmt.Errorf("%s has no limit_req and no limit_conn: an include is not read, so pass the output of nginx -T", name)
	}
	return p.Imported, nil
}

type nginx struct {
	*Imported
	domain  *domain
	zones   map[string]*zone // by name
	order   []*zone          // as in the file
	scopes  []*scope
	servers int // their number
}

// A zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	name      string
	line      int
	directive string // that uses the zone: limit_req or limit_conn
	limit     rulesyaml.DraftLimit
	path      []descriptors.NodeSpec // the key
	constant  string                 // the key of the entry that marks the requests under the zone
	isKnown   bool                   // rules can express the key
	flags     []string               // arguments of weir gen for the key
	uses      []use
}

// A use is a limit_req or a limit_conn.
type use struct {
	line   int
	number int64 // the capacity of a limit_req, or the slots of a limit_conn
}

// A scope is a server or a location of the configuration that serves requests.
type scope struct {
	kind   string             // http, server or location; "" for the file
	name   string             // such as "location /login (line 12)"
	prefix string             // the prefix of a route of Envoy for these requests; "" without one
	start  string             // the beginning of their paths; "" for a regular expression
	zones  map[string][]*zone // by directive
	dryRun map[string]bool    // the directives that deny nothing
}

var zoneName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

var rate = regexp.MustCompile(`^rate=([0-9]{1,9})r/([sm])$`)

// readZones reads the zones, which may follow their uses.
func (p *nginx) readZones(tree []*directive) {
	for _, d := range tree {
		switch d.words[0] {
		case "limit_req_zone", "limit_conn_zone":
			p.readZone(d)
		case "include":
			p.note(d.line, "include %s is not read: pass the output of nginx -T for all files", strings.Join(d.words[1:], " "))
		case "limit_rate", "limit_rate_after":
			p.problem(d.line, "%s limits bytes of one connection: Weir limits requests, or bytes of a key by weir gen --cost", d.words[0])
		case "stream":
			p.rejectStream(d.block)
			continue
		}
		p.readZones(d.block)
	}
}

// rejectStream records a problem for each limit of a stream, which has no requests.
func (p *nginx) rejectStream(tree []*directive) {
	for _, d := range tree {
		if d.words[0] == "limit_conn" {
			p.problem(d.line, "%s limits connections of a stream, and Weir limits requests: keep it in nginx", strings.Join(d.words, " "))
		}
		p.rejectStream(d.block)
	}
}

func (p *nginx) readZone(d *directive) {
	if len(d.words) < 3 {
		p.problem(d.line, "%s has no key and no zone", d.words[0])
		return
	}
	z := &zone{line: d.line, directive: strings.TrimSuffix(d.words[0], "_zone"), limit: rulesyaml.DraftLimit{Algorithm: "concurrency"}}
	if z.directive == "limit_req" {
		z.limit.Algorithm = "funnel"
	}
	for _, w := range d.words[2:] {
		if name, ok := strings.CutPrefix(w, "zone="); ok {
			z.name, _, _ = strings.Cut(name, ":")
		}
		if m := rate.FindStringSubmatch(w); m != nil && z.directive == "limit_req" {
			z.limit.RequestsPerUnit, _ = strconv.ParseInt(m[1], 10, 64)
			z.limit.Unit = map[string]string{"s": "second", "m": "minute"}[m[2]]
		}
	}
	if !zoneName.MatchString(z.name) || z.directive == "limit_req" && z.limit.RequestsPerUnit == 0 {
		p.problem(d.line, "%s %s: want zone=NAME:SIZE and, for requests, a rate such as rate=10r/s of at least 1", d.words[0], z.name)
		return
	}
	if p.zones[z.name] != nil {
		p.problem(d.line, "the zone %s is defined twice", z.name)
		return
	}
	z.path, z.flags, z.isKnown = p.keyOf(d.line, z.name, d.words[1])
	p.zones[z.name] = z
	p.order = append(p.order, z)
}

var nginxVariable = regexp.MustCompile(`\$(?:\{([a-z0-9_]+)\}|([a-z0-9_]+))`)

// keyOf returns the descriptors that count by the key of a zone, and their arguments of weir gen.
func (p *nginx) keyOf(line int, zone, key string) (path []descriptors.NodeSpec, flags []string, ok bool) {
	ok = true
	optional := "" // a variable that may be empty
	for _, m := range nginxVariable.FindAllStringSubmatch(strings.ToLower(key), -1) {
		name := m[1] + m[2]
		switch {
		case name == "binary_remote_addr" || name == "remote_addr":
			path = append(path, entry("remote_address", ""))
		case name == "server_name" || name == "host" || name == "http_host":
			path = append(path, entry("host", ""))
		case name == "uri" || name == "document_uri":
			path = append(path, entry("path", ""))
		case name == "request_uri":
			path = append(path, entry("request_uri", ""))
			flags = append(flags, "--from request_uri=header::path")
		case name == "request_method":
			path = append(path, entry("method", ""))
		case strings.HasPrefix(name, "http_") && name != "http_":
			variable := strings.TrimPrefix(name, "http_")
			header := strings.ReplaceAll(variable, "_", "-")
			key := p.sourceKey(variable, "header", header)
			path = append(path, entry(key, ""))
			flags = append(flags, fromFlag(key, "header", header))
			optional = name
		case strings.HasPrefix(name, "arg_") && name != "arg_":
			parameter := strings.TrimPrefix(name, "arg_")
			key := p.sourceKey(name, "query", parameter)
			path = append(path, entry(key, ""))
			flags = append(flags, fromFlag(key, "query", parameter))
			optional = name
		default:
			p.problem(line, "the zone %s counts by $%s, which is not a header, parameter, address, host, path or method of the request: "+
				"write a rule by hand", zone, name)
			ok = false
		}
	}
	switch rest := nginxVariable.ReplaceAllString(strings.ToLower(key), ""); {
	case len(path) == 0 && strings.Contains(rest, "$"):
		p.problem(line, "the key %s of the zone %s has an unknown form", key, zone)
		ok = false
	case optional != "" && (len(path) > 1 || rest != ""):
		// nginx exempts only a request whose whole key is empty.
		p.problem(line, "the zone %s counts by %s: nginx limits a request without $%s by the rest of the key, and Envoy sends no descriptor "+
			"for it: write rules by hand", zone, key, optional)
		ok = false
	}
	return path, flags, ok
}

// nameConstants names the constants of the zones: as the zone, unless the key of a zone has that
// name, because Envoy would send the constant instead of the key.
func (p *nginx) nameConstants() {
	taken := map[string]bool{"lease": true}
	for _, z := range p.order {
		for _, step := range z.path {
			taken[step.Key] = true
		}
	}
	for _, z := range p.order {
		z.constant = z.name
		for taken[z.constant] {
			z.constant = "zone_" + z.constant
		}
		taken[z.constant] = true
	}
}

// readScope reads the limits of a block and of its inner blocks. A block with limits of its own
// inherits none from its parent.
func (p *nginx) readScope(s *scope, tree []*directive) {
	own := map[string][]*zone{}
	for _, d := range tree {
		switch name := d.words[0]; name {
		case "limit_req", "limit_conn":
			zones := own[name]
			if z := p.readUse(d); z != nil {
				zones = append(zones, z)
			}
			own[name] = zones // after a problem too, because the block inherits no limits
		case "limit_req_dry_run", "limit_conn_dry_run":
			s.dryRun[strings.TrimSuffix(name, "_dry_run")] = d.isOn()
		case "limit_req_status", "limit_conn_status":
			p.note(d.line, "%s: Envoy answers 429, or the rate_limited_status of its filter", strings.Join(d.words, " "))
		}
	}
	maps.Copy(s.zones, own)
	p.readInner(s, tree)
}

// readInner reads the inner blocks that serve requests. It adds the block itself as a scope if the
// block serves requests outside them.
func (p *nginx) readInner(s *scope, tree []*directive) {
	inner, rooted := 0, false
	for _, d := range tree {
		kind := d.words[0]
		if !d.open || kind != "http" && kind != "server" && kind != "location" {
			continue
		}
		inner++
		below := &scope{
			kind: kind, name: fmt.Sprintf("%s (line %d)", strings.Join(d.words, " "), d.line),
			zones: maps.Clone(s.zones), dryRun: maps.Clone(s.dryRun),
		}
		switch kind {
		case "location":
			below.prefix, below.start = prefixOf(d.words), startOf(d.words)
			rooted = rooted || below.prefix == "/"
		case "server":
			below.prefix = "/"
			p.servers++
		}
		p.readScope(below, d.block)
	}
	if s.kind == "location" || s.kind == "server" && !rooted || inner == 0 {
		p.scopes = append(p.scopes, s)
	}
}

// prefixOf returns the prefix of a location, "" if it has none.
func prefixOf(words []string) string {
	switch {
	case len(words) == 2 && strings.HasPrefix(words[1], "/"):
		return words[1]
	case len(words) == 3 && words[1] == "^~":
		return words[2]
	}
	return ""
}

// startOf returns the text with which the paths of a location begin, or "" for a regular
// expression. A named location such as @fallback has no path, and startOf returns its name.
func startOf(words []string) string {
	if len(words) < 2 || strings.HasPrefix(words[1], "~") {
		return ""
	}
	return strings.TrimLeft(words[len(words)-1], "=^~")
}

// readUse adds a limit_req or a limit_conn to its zone. It returns nil after a problem.
func (p *nginx) readUse(d *directive) *zone {
	name := usedZone(d)
	if name == "" {
		p.problem(d.line, "%s names no zone", d.words[0])
		return nil
	}
	z := p.zones[name]
	if z == nil || z.directive != d.words[0] {
		p.problem(d.line, "%s: no such zone is in the file: %s", strings.Join(d.words, " "), name)
		return nil
	}
	read := p.slotsOf
	if z.directive == "limit_req" {
		read = p.capacityOf
	}
	n, ok := read(d, name)
	if !ok {
		return nil
	}
	z.uses = append(z.uses, use{d.line, n})
	return z
}

// usedZone returns the zone that a limit_req or a limit_conn names, or "". The parameters of a
// limit_req have any order.
func usedZone(d *directive) string {
	for _, w := range d.words[1:] {
		if d.words[0] == "limit_conn" {
			return w
		}
		if name, ok := strings.CutPrefix(w, "zone="); ok {
			return name
		}
	}
	return ""
}

// slotsOf returns the connections of a limit_conn.
func (p *nginx) slotsOf(d *directive, zone string) (int64, bool) {
	n, err := strconv.ParseInt(d.words[len(d.words)-1], 10, 64)
	if err != nil || n < 1 || n > maxSlots {
		p.problem(d.line, "limit_conn %s: want a number from 1 to %d", zone, maxSlots)
		return 0, false
	}
	return n, true
}

// capacityOf returns the requests that a limit_req admits at once.
func (p *nginx) capacityOf(d *directive, zone string) (int64, bool) {
	capacity, delayed := int64(1), true
	for _, w := range d.words[1:] {
		burst, isBurst := strings.CutPrefix(w, "burst=")
		n, err := strconv.ParseInt(burst, 10, 64)
		switch {
		case isBurst && err == nil && n >= 0 && n < 1<<31:
			capacity = n + 1
		case w == "nodelay":
			delayed = false
		case strings.HasPrefix(w, "delay="), w == "zone="+zone:
		default:
			p.problem(d.line, "limit_req zone=%s: %s is not known here", zone, w)
			return 0, false
		}
	}
	if delayed && capacity > 1 {
		p.note(d.line, "nginx delays the requests of a burst, and Weir admits them at once: both deny the same requests")
	}
	return capacity, true
}

// addZones adds a rule for each used zone.
func (p *nginx) addZones() {
	for _, z := range p.order {
		if len(z.uses) == 0 {
			p.note(z.line, "the zone %s is not used", z.name)
			continue
		}
		first := z.uses[0]
		for _, u := range z.uses[1:] {
			if u.number != first.number {
				p.problem(u.line, "the zone %s has another burst or number than in line %d, and a rule has one: the rules have that of line %d",
					z.name, first.line, first.line)
			}
		}
		if !z.isKnown {
			continue
		}
		for _, f := range z.flags {
			p.flag("%s", f)
		}
		l, path, constant := z.limit, z.path, []descriptors.NodeSpec{entry(z.constant, "on")}
		if !p.isEverywhere(z) || len(path) == 0 {
			path = slices.Concat(constant, path)
			p.addRoutes(z)
		}
		if z.directive == "limit_req" {
			l.Capacity = first.number
		} else {
			l.ConcurrentRequests = first.number
			path = append(slices.Clone(path), entry("lease", ""))
			p.note(z.line, "limit_conn %s: a request holds its slot for at most 60 s, the default of lease_ttl", z.name)
		}
		leaf := p.domain.rules.At(path)
		if !addLimit(leaf, l) {
			p.addRoutes(z)
			leaf = p.domain.rules.At(slices.Concat(constant, path))
			addLimit(leaf, l)
		}
		leaf.Comment = fmt.Sprintf("zone %s, line %d", z.name, z.line)
		leaf.ShadowMode = leaf.ShadowMode || p.isDryRun(z)
	}
}

// isDryRun reports whether a zone is in a dry run, in which it denies no request, in every scope
// that uses it. It records a problem for a dry run in only some of these scopes.
func (p *nginx) isDryRun(z *zone) bool {
	dry, enforced := "", ""
	for _, s := range p.scopes {
		switch {
		case !s.has(z):
		case s.dryRun[z.directive]:
			dry = cmp.Or(dry, s.name)
		default:
			enforced = cmp.Or(enforced, s.name)
		}
	}
	if dry != "" && enforced != "" {
		p.problem(z.line, "the zone %s has a dry run in %s and not in %s, and a rule has one shadow_mode: the rules have none",
			z.name, dry, enforced)
	}
	return dry != "" && enforced == ""
}

// noteGroups notes a difference: nginx charges either all zones of a request or none.
func (p *nginx) noteGroups() {
	for _, s := range p.scopes {
		if all := slices.Concat(s.zones["limit_req"], s.zones["limit_conn"]); len(all) > 1 {
			p.note(all[0].line, "nginx charges all zones of a request or none: set STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true for Weir "+
				"to do so across descriptors")
			return
		}
	}
}

// has reports whether a zone limits the requests of a scope.
func (s *scope) has(z *zone) bool { return slices.Contains(s.zones[z.directive], z) }

// isEverywhere reports whether the zone limits every request.
func (p *nginx) isEverywhere(z *zone) bool {
	return !slices.ContainsFunc(p.scopes, func(s *scope) bool { return !s.has(z) })
}

// addRoutes adds the routes that send the constant of a zone.
func (p *nginx) addRoutes(z *zone) {
	if p.isEverywhere(z) {
		p.flag("--from %s=constant", z.constant)
		return
	}
	for _, s := range p.scopes {
		switch {
		case s.has(z) && s.prefix != "" && p.servers < 2:
			p.addRoute(z.line, s.prefix, z.constant, "on")
		case s.has(z):
			p.note(z.line, "%s is under the zone %s: send the entry (%s, on) from the Envoy routes that it corresponds to", s.name,
				z.name, z.constant)
		case s.prefix == "" && p.covers(z, s):
			p.note(z.line, "%s is not under the zone %s: give it an Envoy route without the entry (%s, on)", s.name, z.name, z.constant)
		}
	}
}

// addRoute adds a constant to the route for a prefix. weir gen accepts one --route for each prefix.
func (p *nginx) addRoute(line int, prefix, key, value string) {
	if p.cannotRoute(line, prefix, key, value) {
		return
	}
	n, constant := p.routeOf(prefix), key+"="+value
	if n < 0 {
		p.flag("--route %s:%s", prefix, constant)
		return
	}
	if all := strings.TrimPrefix(p.flags[n], "--route "+prefix+":"); !slices.Contains(strings.Split(all, ","), constant) {
		p.flags[n] += "," + constant
	}
}

// covers reports whether a request of a scope without a zone may match a route of Envoy that sends
// the constant of the zone.
func (p *nginx) covers(z *zone, s *scope) bool {
	return p.servers < 2 && slices.ContainsFunc(p.scopes, func(o *scope) bool {
		return o != s && o.has(z) && o.prefix != "" && (s.start == "" || strings.HasPrefix(s.start, o.prefix))
	})
}

// addExemptions adds routes for locations without a zone, if Envoy would otherwise take a route
// with a shorter prefix and the constant of the zone. The routes send the value off, which no rule
// has.
func (p *nginx) addExemptions() {
	for _, s := range p.scopes {
		if s.prefix == "" || p.routeOf(s.prefix) >= 0 {
			continue
		}
		if n := slices.IndexFunc(p.order, func(z *zone) bool { return z.isKnown && !s.has(z) && p.covers(z, s) }); n >= 0 {
			p.addRoute(p.order[n].line, s.prefix, p.order[n].constant, "off")
		}
	}
}
