package differential

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/e2e/harness"
)

const badRules = `domain: bad
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}
`

// badRequests crash or block envoyproxy/ratelimit, or are absurdly large. Only Weir receives them.
// want is the text of answer.brief.
var badRequests = []struct {
	name string
	ask  *request
	want string
}{
	{"unit of an override is UNKNOWN: envoyproxy/ratelimit crashes",
		ask("bad", withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_UNKNOWN)), "InvalidArgument"},
	{"unit of an override is unassigned: envoyproxy/ratelimit crashes",
		ask("bad", withLimit(desc("k", "v"), 5, 99)), "InvalidArgument"},
	{"unit of an override is negative: envoyproxy/ratelimit crashes",
		ask("bad", withLimit(desc("k", "v"), 5, -1)), "InvalidArgument"},
	{"the second of two overrides is bad",
		ask("bad", desc("k", "v"), withLimit(desc("k", "v"), 5, 0)), "InvalidArgument"},
	{"unit_multiplier 0",
		ask("bad", withMultiplier(withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_DAY), 0)), "InvalidArgument"},
	{"unit_multiplier of billions of years",
		ask("bad", withMultiplier(withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_YEAR), 1<<32-1)), "InvalidArgument"},
	{"hits that turn the counter of envoyproxy/ratelimit negative", // and every later request into an error
		ask("bad", withHits(desc("k", "huge"), 1<<64-1)), "OVER_LIMIT: OVER_LIMIT 1000/YEAR left 0"},
	{"the same again", ask("bad", withHits(desc("k", "huge"), 1<<63)), "OVER_LIMIT: OVER_LIMIT 1000/YEAR left 0"},
	{"a refund of more than was charged",
		ask("bad", refund(desc("k", "refund"), 1<<64-1)), "OK: OK 1000/YEAR left 1000"},
	{"ten thousand descriptors", ask("bad", many(10_000)...), "InvalidArgument"},
	{"ten thousand entries", ask("bad", desc(make([]string, 20_000)...)), "InvalidArgument"},
	{"a value of a megabyte", ask("bad", desc("k", strings.Repeat("v", 1<<20))), "OK: OK 1000/YEAR left 999"},
	{"a domain of a megabyte", ask(strings.Repeat("d", 1<<20), desc("k", "v")), "OK: OK"},
	{"a header of 60 KiB in each of fifty descriptors", ask("bad", slices.Repeat([]*descriptor{desc("k", strings.Repeat("w", 60<<10))}, 50)...),
		"OK: " + fifty()},
	{"more than the maximum size of a message", ask("bad", desc("k", strings.Repeat("v", 8<<20))), "ResourceExhausted"},
	{"line ends and a command of the Redis protocol", ask("bad", desc("k", "\r\n*1\r\n$8\r\nFLUSHALL\r\n")), "OK: OK 1000/YEAR left 999"},
	{"a null byte", ask("bad", desc("k", "\x00")), "OK: OK 1000/YEAR left 999"},
	{"braces", ask("bad", desc("k", "}{")), "OK: OK 1000/YEAR left 999"},
}

// fifty returns the statuses of the first request of fifty equal descriptors.
func fifty() string {
	var statuses []string
	for i := range 50 {
		statuses = append(statuses, fmt.Sprintf("OK 1000/YEAR left %d", 999-i))
	}
	return strings.Join(statuses, " | ")
}

func many(n int) (ds []*descriptor) {
	for range n {
		ds = append(ds, desc("k", "many"))
	}
	return ds
}

// Every bad request must get an answer, and so must an ordinary request after it.
func TestBadRequestsAreAnswered(t *testing.T) {
	weir := startWeir(t, []file{{"bad.yaml", badRules}})
	left := 1000
	good := func() {
		t.Helper()
		left--
		got := weir.ask(t.Context(), ask("bad", desc("k", "good")))
		if got.err != nil || got.response.GetStatuses()[0].GetLimitRemaining() != uint32(left) {
			t.Errorf("the next request: %v %v, want %d left\n%s", got, got.err, left, weir.Tail())
		}
	}
	for _, c := range badRequests {
		got := weir.ask(t.Context(), c.ask)
		if got.brief() != c.want {
			t.Errorf("%s: got %s %s, want %s", c.name, got.brief(), errorText(got), c.want)
		}
		good()
	}
	for name, raw := range map[string]string{
		"no message":             "\xff\xff\xff\xff",
		"a key of invalid UTF-8": "\x0a\x03bad\x12\x08\x0a\x06\x0a\x01\xff\x12\x01v",
		"a length of 4 GiB":      "\x0a\xff\xff\xff\xff\x0f",
		"an unknown wire type":   "\x07",
	} {
		err := weir.conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			raw, new(string), grpc.ForceCodec(rawCodec{}))
		if code := status.Code(err); code != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
		good()
	}
	// Any client can send a header of invalid UTF-8. If Weir rejected it, Envoy might let the
	// request pass.
	value := "\x0a\x03bad\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff"
	if err := weir.conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		value, new(string), grpc.ForceCodec(rawCodec{})); err != nil {
		t.Errorf("a value of invalid UTF-8: %v, want a response", err)
	}
	harness.MustStop(t, weir.Process)
}

// A rawCodec sends strings as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

func (rawCodec) Name() string { return "proto" }
