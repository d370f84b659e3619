package envoygen

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A kind is where Envoy finds the value of a key.
type kind string

const (
	fromHeader      kind = "header"
	fromPath        kind = "path"
	fromMethod      kind = "method"
	fromHost        kind = "host"
	fromQuery       kind = "query"
	fromMetadata    kind = "metadata"
	fromAddress     kind = "remote_address"
	fromMasked      kind = "masked_remote_address"
	fromConstant    kind = "constant"
	fromMatch       kind = "match"
	fromStatus      kind = "status"
	fromCEL         kind = "cel"
	fromSource      kind = "source_cluster"
	fromDestination kind = "destination_cluster"
	fromRequestID   kind = "request_id" // for rules with leases
)

// sources describes the sources that --from takes.
const sources = "header:NAME, path, method, host, query:NAME, metadata:NAMESPACE:KEY.PATH, remote_address, " +
	"masked_remote_address:V4/V6, constant, match:VALUE=HEADER:TEXT, status:CODES, cel:EXPRESSION, source_cluster or destination_cluster"

// A source is the kind and the argument of where Envoy finds the value of a key.
type source struct {
	kind       kind
	arg        string
	v4, v6     *uint32               // prefix lengths of masked_remote_address; nil if neither the argument nor the rules set it
	conditions map[string]*condition // of match and status, by value
	isSet      bool                  // an argument sets the source
}

// A condition is when a key has a value: a header has a text, or the status has one of the codes.
type condition struct {
	header, text string
	codes        []string // such as 404, 400-404 or 5xx
}

// wellKnown are the sources of keys by default, in lower case.
var wellKnown = map[string]source{
	"remote_address": {kind: fromAddress}, "ip": {kind: fromAddress}, "client_ip": {kind: fromAddress}, "remote_ip": {kind: fromAddress},
	"source_ip": {kind: fromAddress}, "masked_remote_address": {kind: fromMasked},
	"path": {kind: fromPath}, "method": {kind: fromMethod}, "host": {kind: fromHost}, "authority": {kind: fromHost},
	"user_agent": {kind: fromHeader, arg: "user-agent"}, "generic_key": {kind: fromConstant},
	"source_cluster": {kind: fromSource}, "destination_cluster": {kind: fromDestination},
}

// matchKeys are the default keys of actions that need a condition.
var matchKeys = []string{"header_match", "query_match", "remote_address_match"}

// IsKnownKey reports whether weir gen knows the key, and does not take its value from a header.
func IsKnownKey(key string) bool {
	s, known := wellKnown[strings.ToLower(key)]
	return known && s.kind != fromHeader || slices.Contains(matchKeys, key)
}

var headerName = regexp.MustCompile("^:?[-!#$%&'*+.^_`|~0-9a-z]+$")

// defaultSource returns the source of a key that --from does not name. For an unknown key it is a
// header with the name of the key.
func defaultSource(n *descriptors.NodeSpec) (s source, unknown bool, err error) {
	if known, ok := wellKnown[strings.ToLower(n.Key)]; ok {
		return known, false, nil
	}
	if slices.Contains(matchKeys, n.Key) {
		return s, false, fmt.Errorf("the rules do not say when Envoy sends the key %s: set --from '%s=match:VALUE=HEADER:TEXT'", n.Key, n.Key)
	}
	name := strings.ReplaceAll(strings.ToLower(n.Key), "_", "-")
	if !strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, ":") {
		name = "x-" + name
	}
	if !headerName.MatchString(name) {
		return s, false, fmt.Errorf("the key %q is not the name of a header: set --from '%s=SOURCE', where SOURCE is %s", n.Key, n.Key, sources)
	}
	return source{kind: fromHeader, arg: name}, true, nil
}

// readSource reads a source, and adds it to an earlier one of the same key.
func readSource(key, text string, earlier *source) (*source, error) {
	name, arg, _ := strings.Cut(text, ":")
	s := &source{kind: kind(name), arg: arg, isSet: true}
	if earlier != nil {
		if earlier.kind != s.kind || s.kind != fromMatch && s.kind != fromStatus {
			return nil, fmt.Errorf("--from names the key %s twice: remove one", key)
		}
		s.conditions = earlier.conditions
	}
	switch s.kind {
	case fromHeader:
		s.arg = strings.ToLower(arg)
		if !headerName.MatchString(s.arg) {
			return nil, fmt.Errorf("%q is not the name of a header: write header:NAME, such as header:x-user-id", arg)
		}
	case fromQuery, fromCEL:
		if arg == "" {
			return nil, fmt.Errorf("%s needs a text after the colon: write %s:TEXT", name, name)
		}
	case fromMetadata:
		if namespace, path, ok := strings.Cut(arg, ":"); !ok || namespace == "" || slices.Contains(strings.Split(path, "."), "") {
			return nil, errors.New("write metadata:NAMESPACE:KEY.PATH, such as metadata:envoy.filters.http.jwt_authn:claims.sub")
		}
	case fromMasked:
		if err := s.checkKey(key); err != nil {
			return nil, err
		}
		return s, s.readMask()
	case fromMatch:
		return s, s.readMatch()
	case fromStatus:
		return s, s.readStatus()
	case fromPath, fromMethod, fromHost, fromAddress, fromConstant, fromSource, fromDestination:
		if arg != "" {
			return nil, fmt.Errorf("%s takes no text after a colon: write %s", name, name)
		}
		return s, s.checkKey(key)
	default:
		return nil, fmt.Errorf("write %s", sources)
	}
	return s, nil
}

// checkKey returns an error if Envoy sends the source only under another key.
func (s *source) checkKey(key string) error {
	switch s.kind {
	case fromMasked, fromSource, fromDestination:
		if key != string(s.kind) {
			return fmt.Errorf("envoy sends the %s only under the key %s: use that key in the rule, or another source", s.kind, s.kind)
		}
	}
	return nil
}

func (s *source) readMask() error {
	if s.arg == "" {
		return nil
	}
	four, six, ok := strings.Cut(s.arg, "/")
	v4, err4 := strconv.ParseUint(four, 10, 8)
	v6, err6 := strconv.ParseUint(six, 10, 8)
	if !ok || err4 != nil || err6 != nil || v4 > 32 || v6 > 128 {
		return errors.New("write masked_remote_address:V4/V6, the lengths of prefixes, such as 24/64")
	}
	s.v4, s.v6 = new(uint32(v4)), new(uint32(v6))
	return nil
}

func (s *source) readMatch() error {
	value, match, ok := strings.Cut(s.arg, "=")
	header, text, colon := strings.Cut(match, ":")
	header = strings.ToLower(header)
	if !ok || !colon || value == "" || !headerName.MatchString(header) {
		return errors.New("write match:VALUE=HEADER:TEXT, such as match:partner=x-api-key:SECRET")
	}
	return s.addCondition(value, &condition{header: header, text: text})
}

var statusCodes = regexp.MustCompile(`^([1-5]xx|[1-5][0-9][0-9](-[1-5][0-9][0-9])?)$`)

// readStatus reads CODES or VALUE=CODES. The value "" stands for the only value of the rules.
func (s *source) readStatus() error {
	value, codes, ok := strings.Cut(s.arg, "=")
	if !ok {
		value, codes = "", s.arg
	}
	all := strings.Split(codes, ",")
	for _, c := range all {
		if first, last := rangeOf(c); !statusCodes.MatchString(c) || first > last {
			return errors.New("write status:CODES or status:VALUE=CODES, such as status:401,403 or status:failed=5xx,400-404")
		}
		if shared := s.sharedStatus(value, c); shared != "" {
			return fmt.Errorf("an earlier --from of this key has the status %s too: remove it from one of them, because Envoy sends one "+
				"value for a status", shared)
		}
	}
	return s.addCondition(value, &condition{codes: all})
}

// sharedStatus returns a status that code has in common with the codes of a value other than value,
// or "".
func (s *source) sharedStatus(value, code string) string {
	first, last := rangeOf(code)
	for _, other := range slices.Sorted(maps.Keys(s.conditions)) {
		if other == value {
			continue
		}
		for _, c := range s.conditions[other].codes {
			otherFirst, otherLast := rangeOf(c)
			if shared := max(first, otherFirst); shared <= min(last, otherLast) {
				return shared
			}
		}
	}
	return ""
}

// rangeOf returns the first and the last status of a code such as 404, 400-404 or 5xx.
func rangeOf(code string) (first, last string) {
	first, last, isRange := strings.Cut(code, "-")
	class, isClass := strings.CutSuffix(code, "xx")
	switch {
	case isRange:
		return first, last
	case isClass:
		return class + "00", class + "99"
	}
	return code, code
}

func (s *source) addCondition(value string, c *condition) error {
	if s.conditions == nil {
		s.conditions = map[string]*condition{}
	}
	if s.conditions[value] != nil {
		return fmt.Errorf("the value %q is given twice: remove one", value)
	}
	s.conditions[value] = c
	return nil
}

// cel returns the codes as a CEL expression.
func (c *condition) cel() string {
	var all []string
	for _, code := range c.codes {
		if first, last := rangeOf(code); first < last {
			all = append(all, fmt.Sprintf("response.code >= %s && response.code <= %s", first, last))
		} else {
			all = append(all, "response.code == "+first)
		}
	}
	return strings.Join(all, " || ")
}

// statusExpression returns the CEL expression that is the value of the status, or a value that no
// rule has.
func (s *source) statusExpression() string {
	otherwise := "other"
	for s.conditions[otherwise] != nil {
		otherwise += "_"
	}
	var b strings.Builder
	for _, value := range slices.Sorted(maps.Keys(s.conditions)) {
		fmt.Fprintf(&b, "%s ? %s : ", s.conditions[value].cel(), strconv.Quote(value))
	}
	return b.String() + strconv.Quote(otherwise)
}
