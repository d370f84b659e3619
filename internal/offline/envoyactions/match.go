package envoyactions

import (
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// header returns the values of a header. Pseudo-headers come from the request line.
func (r *Request) header(name string) []string {
	switch name = strings.ToLower(name); name {
	case ":path":
		return []string{r.Path}
	case ":method":
		return []string{r.Method}
	case ":authority", "host":
		if r.Host == "" {
			return nil
		}
		return []string{r.Host}
	case ":scheme":
		return []string{"http"}
	}
	var values []string
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			values = append(values, h.Value)
		}
	}
	return values
}

// path returns the path without query and fragment, and the query.
func (r *Request) path() (path, query string) {
	path, _, _ = strings.Cut(r.Path, "#")
	path, query, _ = strings.Cut(path, "?")
	return path, query
}

// A parameter is a name and a value of the query string.
type parameter struct{ name, value string }

// parameters returns the parameters of the query as they are written.
func (r *Request) parameters() []parameter {
	_, query := r.path()
	var all []parameter
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		all = append(all, parameter{name, value})
	}
	return all
}

// decodedParameters returns the decoded parameters of the query. Like Envoy, it decodes %20, and
// keeps a plus sign.
func (r *Request) decodedParameters() []parameter {
	all := r.parameters()
	for i, p := range all {
		all[i] = parameter{unescape(p.name), unescape(p.value)}
	}
	return all
}

var percentEscape = regexp.MustCompile("%[0-9A-Fa-f]{2}")

// unescape decodes each %XX, and leaves any other % as it is.
func unescape(text string) string {
	return percentEscape.ReplaceAllStringFunc(text, func(escape string) string {
		c, _ := strconv.ParseUint(escape[1:], 16, 8) // the expression matches only hexadecimal digits
		return string([]byte{byte(c)})
	})
}

func first(all []parameter, name string) (value string, found bool) {
	for _, p := range all {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// allMatch reports whether all conditions hold. The error of a condition means that it needs more
// than the configuration and the request. If one condition does not hold, the result is false, even
// if another has an error.
func allMatch(conditions iter.Seq2[bool, error]) (bool, error) {
	var open error
	for ok, err := range conditions {
		switch {
		case err == nil && !ok:
			return false, nil
		case open == nil:
			open = err
		}
	}
	return open == nil, open
}

// matchRoute evaluates the conditions of a route.
func matchRoute(m *routev3.RouteMatch, r *Request) (bool, error) {
	return allMatch(func(yield func(bool, error) bool) {
		_ = yield(matchPath(m, r)) &&
			yield(matchHeaders(m.GetHeaders(), r)) &&
			yield(matchParameters(m.GetQueryParameters(), r.parameters())) &&
			yield(matchRuntime(m)) &&
			yield(m.GetGrpc() == nil || r.isGRPC(), nil) &&
			yield(matchUnsupported(m))
	})
}

// isGRPC reports whether the content type is that of gRPC. That of gRPC-Web is not.
func (r *Request) isGRPC() bool {
	types := r.header("content-type")
	return len(types) > 0 && (types[0] == "application/grpc" || strings.HasPrefix(types[0], "application/grpc+"))
}

// matchUnsupported names a condition that this package does not evaluate.
func matchUnsupported(m *routev3.RouteMatch) (bool, error) {
	switch {
	case m.GetTlsContext() != nil:
		return false, errors.New("tls_context is not supported")
	case len(m.GetDynamicMetadata()) > 0:
		return false, errors.New("dynamic_metadata is not supported")
	case len(m.GetFilterState()) > 0:
		return false, errors.New("filter_state is not supported")
	case len(m.GetCookies()) > 0:
		return false, errors.New("cookies is not supported")
	}
	return true, nil
}

func matchPath(m *routev3.RouteMatch, r *Request) (bool, error) {
	path, _ := r.path()
	fold := folding(m.GetCaseSensitive() != nil && !m.GetCaseSensitive().GetValue())
	switch by := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(fold(path), fold(by.Prefix)), nil
	case *routev3.RouteMatch_Path:
		return fold(path) == fold(by.Path), nil
	case *routev3.RouteMatch_PathSeparatedPrefix:
		rest, ok := strings.CutPrefix(fold(path), fold(by.PathSeparatedPrefix))
		return ok && (rest == "" || rest[0] == '/'), nil
	case *routev3.RouteMatch_SafeRegex:
		return matchRegex(by.SafeRegex, path)
	case *routev3.RouteMatch_ConnectMatcher_:
		return r.Method == "CONNECT", nil
	case *routev3.RouteMatch_PathMatchPolicy:
		return false, errors.New("path_match_policy is not supported")
	}
	return false, errors.New("the match has no condition for the path")
}

// matchRuntime evaluates runtime_fraction by its default value. Only 0 % and 100 % are decidable,
// and only without a runtime key.
func matchRuntime(m *routev3.RouteMatch) (bool, error) {
	fraction := m.GetRuntimeFraction()
	if fraction == nil {
		return true, nil
	}
	denominator := uint32(100)
	switch fraction.GetDefaultValue().GetDenominator() {
	case typev3.FractionalPercent_TEN_THOUSAND:
		denominator = 10_000
	case typev3.FractionalPercent_MILLION:
		denominator = 1_000_000
	}
	switch n := fraction.GetDefaultValue().GetNumerator(); {
	case fraction.GetRuntimeKey() != "":
		return false, fmt.Errorf("runtime_fraction depends on the runtime key %q", fraction.GetRuntimeKey())
	case n == 0:
		return false, nil
	case n >= denominator:
		return true, nil
	}
	return false, errors.New("runtime_fraction selects requests at random")
}

// matchRegex reports whether an expression matches the whole text. Go and Envoy share the syntax of
// RE2.
func matchRegex(m *matcherv3.RegexMatcher, text string) (bool, error) {
	compiled, err := regexp.Compile(`\A(?:` + m.GetRegex() + `)\z`)
	if err != nil {
		return false, err
	}
	return compiled.MatchString(text), nil
}

// folding returns the function to apply to two texts before a comparison.
func folding(ignoreCase bool) func(string) string {
	if ignoreCase {
		return strings.ToLower
	}
	return func(s string) string { return s }
}

func matchString(m *matcherv3.StringMatcher, text string) (bool, error) {
	fold := folding(m.GetIgnoreCase())
	switch by := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return fold(text) == fold(by.Exact), nil
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(fold(text), fold(by.Prefix)), nil
	case *matcherv3.StringMatcher_Suffix:
		return strings.HasSuffix(fold(text), fold(by.Suffix)), nil
	case *matcherv3.StringMatcher_Contains:
		return strings.Contains(fold(text), fold(by.Contains)), nil
	case *matcherv3.StringMatcher_SafeRegex:
		return matchRegex(by.SafeRegex, text)
	}
	return false, errors.New("the string matcher is a custom one, which is not supported")
}

// matchAll reports whether all matchers of a kind match.
func matchAll[M interface{ GetName() string }](kind string, matchers []M, match func(M) (bool, error)) (bool, error) {
	return allMatch(func(yield func(bool, error) bool) {
		for _, m := range matchers {
			ok, err := match(m)
			if err != nil {
				err = fmt.Errorf("%s %s: %w", kind, m.GetName(), err)
			}
			if !yield(ok, err) {
				return
			}
		}
	})
}

func matchHeaders(matchers []*routev3.HeaderMatcher, r *Request) (bool, error) {
	return matchAll("header", matchers, func(m *routev3.HeaderMatcher) (bool, error) { return matchHeader(m, r) })
}

func matchHeader(m *routev3.HeaderMatcher, r *Request) (bool, error) {
	values := r.header(m.GetName())
	present := len(values) > 0 || m.GetTreatMissingHeaderAsEmpty()
	text := strings.Join(values, ",")
	var ok bool
	var err error
	switch by := m.GetHeaderMatchSpecifier().(type) {
	case nil:
		return present != m.GetInvertMatch(), nil
	case *routev3.HeaderMatcher_PresentMatch:
		return (present == by.PresentMatch) != m.GetInvertMatch(), nil
	case *routev3.HeaderMatcher_StringMatch:
		ok, err = matchString(by.StringMatch, text)
	case *routev3.HeaderMatcher_RangeMatch:
		n, bad := strconv.ParseInt(text, 10, 64)
		ok = bad == nil && n >= by.RangeMatch.GetStart() && n < by.RangeMatch.GetEnd()
	default:
		ok, err = matchDeprecated(m, text)
	}
	if !present {
		return false, nil // nothing matches, not even an inverted or an undecidable matcher
	}
	return ok != m.GetInvertMatch(), err
}

// matchDeprecated evaluates the header matchers that string_match has replaced. Envoy still accepts
// them, and old configurations use them.
//
//nolint:staticcheck // deprecated fields are its purpose
func matchDeprecated(m *routev3.HeaderMatcher, text string) (bool, error) {
	switch {
	case m.GetExactMatch() != "":
		return text == m.GetExactMatch(), nil
	case m.GetPrefixMatch() != "":
		return strings.HasPrefix(text, m.GetPrefixMatch()), nil
	case m.GetSuffixMatch() != "":
		return strings.HasSuffix(text, m.GetSuffixMatch()), nil
	case m.GetContainsMatch() != "":
		return strings.Contains(text, m.GetContainsMatch()), nil
	case m.GetSafeRegexMatch() != nil:
		return matchRegex(m.GetSafeRegexMatch(), text)
	}
	return false, errors.New("the header matcher is not supported")
}

func matchParameters(matchers []*routev3.QueryParameterMatcher, parameters []parameter) (bool, error) {
	return matchAll("query parameter", matchers, func(m *routev3.QueryParameterMatcher) (bool, error) {
		return matchParameter(m, parameters)
	})
}

func matchParameter(m *routev3.QueryParameterMatcher, parameters []parameter) (bool, error) {
	value, present := first(parameters, m.GetName())
	switch by := m.GetQueryParameterMatchSpecifier().(type) {
	case *routev3.QueryParameterMatcher_PresentMatch:
		return present == by.PresentMatch, nil
	case *routev3.QueryParameterMatcher_StringMatch:
		if present {
			return matchString(by.StringMatch, value)
		}
	}
	return present, nil
}
