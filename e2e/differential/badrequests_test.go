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
)

const badRules = `domain: bad
descriptors:
  - {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}
`

// badRequests crash or wedge the incumbent, or ask for more than anybody means. Weir alone is asked; want is what
// answer.brief tells, "" for any answer.
var badRequests = []struct {
	name string
	ask  *request
	want string
}{
	{"unit of an override is UNKNOWN: the incumbent dies", // ratelimit.md §8, 1
		ask("bad", withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_UNKNOWN)), "InvalidArgument"},
	{"unit of an override is unassigned: the incumbent dies",
		ask("bad", withLimit(desc("k", "v"), 5, 99)), "InvalidArgument"},
	{"unit of an override is negative: the incumbent dies",
		ask("bad", withLimit(desc("k", "v"), 5, -1)), "InvalidArgument"},
	{"the second of two overrides is bad",
		ask("bad", desc("k", "v"), withLimit(desc("k", "v"), 5, 0)), "InvalidArgument"},
	{"unit_multiplier 0",
		ask("bad", withMultiplier(withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_DAY), 0)), "InvalidArgument"},
	{"unit_multiplier beyond all time",
		ask("bad", withMultiplier(withLimit(desc("k", "v"), 5, typev3.RateLimitUnit_YEAR), 1<<32-1)), "InvalidArgument"},
	{"hits that turn the incumbent's counter negative", // and the key into an error
		ask("bad", withHits(desc("k", "huge"), 1<<64-1)), "OVER_LIMIT: OVER_LIMIT 1000/YEAR left 0"},
	{"the same again", ask("bad", withHits(desc("k", "huge"), 1<<63)), "OVER_LIMIT: OVER_LIMIT 1000/YEAR left 0"},
	{"a refund of more than there ever was",
		ask("bad", refund(desc("k", "refund"), 1<<64-1)), "OK: OK 1000/YEAR left 1000"},
	{"ten thousand descriptors", ask("bad", many(10_000)...), "InvalidArgument"},
	{"ten thousand entries", ask("bad", desc(make([]string, 20_000)...)), "InvalidArgument"},
	{"a value of a megabyte", ask("bad", desc("k", strings.Repeat("v", 1<<20))), "OK: OK 1000/YEAR left 999"},
	{"a domain of a megabyte", ask(strings.Repeat("d", 1<<20), desc("k", "v")), "OK: OK"},
	{"a header of 60 KiB in each of fifty descriptors", ask("bad", slices.Repeat([]*descriptor{desc("k", strings.Repeat("w", 60<<10))}, 50)...),
		"OK: " + fifty()},
	{"more than a message may hold", ask("bad", desc("k", strings.Repeat("v", 8<<20))), "ResourceExhausted"},
	{"what ends a line in Redis", ask("bad", desc("k", "\r\n*1\r\n$8\r\nFLUSHALL\r\n")), "OK: OK 1000/YEAR left 999"},
	{"a null byte", ask("bad", desc("k", "\x00")), "OK: OK 1000/YEAR left 999"},
	{"braces", ask("bad", desc("k", "}{")), "OK: OK 1000/YEAR left 999"},
}

// fifty is what fifty descriptors of one tuple are told, the first time.
func fifty() string {
	var told []string
	for i := range 50 {
		told = append(told, fmt.Sprintf("OK 1000/YEAR left %d", 999-i))
	}
	return strings.Join(told, " | ")
}

func many(n int) (ds []*descriptor) {
	for range n {
		ds = append(ds, desc("k", "many"))
	}
	return ds
}

// TestBadRequests asks Weir what nobody should. Each gets its answer, and the next one too.
func TestBadRequests(t *testing.T) {
	weir := startWeir(t, []file{{"bad.yaml", badRules}})
	left := 1000
	good := func() {
		t.Helper()
		left--
		got := weir.ask(t.Context(), ask("bad", desc("k", "good")))
		if got.err != nil || got.response.GetStatuses()[0].GetLimitRemaining() != uint32(left) {
			t.Errorf("the request after it: %v %v, want %d left\n%s", got, got.err, left, weir.log)
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
		"a key that is no UTF-8": "\x0a\x03bad\x12\x08\x0a\x06\x0a\x01\xff\x12\x01v",
		"a length beyond all":    "\x0a\xff\xff\xff\xff\x0f",
		"a field of no type":     "\x07",
	} {
		err := weir.conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			raw, new(string), grpc.ForceCodec(rawCodec{}))
		if code := status.Code(err); code != codes.Internal && code != codes.InvalidArgument {
			t.Errorf("%s: %v, want that it is refused", name, err)
		}
		good()
	}
	// A header that is no UTF-8 is for any client to send, and a message that is refused lets its request pass Envoy.
	value := "\x0a\x03bad\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff"
	if err := weir.conn.Invoke(t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		value, new(string), grpc.ForceCodec(rawCodec{})); err != nil {
		t.Errorf("a value that is no UTF-8: %v, want an answer", err)
	}
	weir.ends(t)
}

// A rawCodec sends what is no message.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return []byte(v.(string)), nil }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data)
	return nil
}

func (rawCodec) Name() string { return "proto" }
