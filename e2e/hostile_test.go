package e2e_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// hostile are values that look like each other, or like the text around a value in a key.
func hostile() []string {
	long := strings.Repeat("v", 59<<10-1000) // Envoy's own bound is 60 KiB for all headers
	return []string{
		"alice", "Alice", "alicé", "alice\u0301", "аlice", "ａlice", "alice\u200b", "\u202eecila", "🙂", "🙂\ufe0f",
		"%00", "%2500", "alice%00", "alice%00bob", "%61lice", "%C3%A9", "\\0", "\\u0000", "alice\\", "\"alice\"", "'alice'",
		"{", "}", "{}", "{alice}", "}alice{", "a}{b", "{{alice}}", "|", "||", "alice|6:action=5:login", "5:alice", "5:alice|",
		"=", "*", "^", "~", "?", "#", "a=b", "a_b", "a.b", "a:b", ":", "0:", "alice|", "|6:action=5:login", "^^", "*:alice",
		"#" + strings.Repeat("0", 64), strings.Repeat("v", 127), strings.Repeat("v", 128), strings.Repeat("v", 129), long, long + "w",
		"-1", "0", "9223372036854775808", "1e309", "NaN", "nil", "null", "true", "../../etc/passwd", "<script>", "'; DROP TABLE users; --",
		"\xff", "\xfe", "alice\xc3", "\xed\xa0\x80", // invalid UTF-8
		"return redis.call('FLUSHALL')", "*3\\r\\n$3\\r\\nSET", "EVAL", "${jndi:ldap://x}", "%s%n%d", "a\tb", "a  b",
	}
}

const onceAYear = "domain: weir\ndescriptors:\n" +
	"  - {key: user_id, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 1}}\n"

// Through Envoy each value has a counter of its own: it is admitted once, and then denied.
func TestHostileHeadersHaveTheirOwnCounters(t *testing.T) {
	onEachStore(t, hourly(1), func(t *testing.T, w *harness.Weir) {
		c := startEnvoy(t, "bootstrap.yaml", w)
		for round, want := range []int{200, 429} {
			for _, value := range hostile() {
				if a := c.do(t, value, "reply"); a.Status != want || a.Limit == "" {
					t.Errorf("round %d of %.60q: %+v, want %d by a limit", round+1, value, a, want)
				}
			}
		}
		mustBeWell(t, w)
	})
}

// Values that Envoy would reject, from a client that reaches Weir directly.
func TestHostileValuesHaveTheirOwnCounters(t *testing.T) {
	onEachStore(t, onceAYear, func(t *testing.T, w *harness.Weir) {
		ask := directCalls(t, w)
		huge := strings.Repeat("x", 1<<20)
		// The client's codec rejects invalid UTF-8.
		noUTF8 := func(value string) bool { return !utf8.ValidString(value) }
		values := append(slices.DeleteFunc(hostile(), noUTF8), "\x00", "alice\x00", "\x00alice", "a\nb", "a\r\nb", "\x1b[2J", "", " ", "alice ", " alice", huge, huge+"y")
		for round, want := range []ratelimitv3.RateLimitResponse_Code{ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT} {
			for _, value := range values {
				r, err := ask("user_id", value)
				if err != nil || r.GetOverallCode() != want || r.GetStatuses()[0].GetCurrentLimit() == nil {
					t.Errorf("round %d of %.60q: %.200v, %v, want %v by a limit", round+1, value, r, err, want)
				}
			}
		}
		for what, c := range map[string]struct {
			key, value string
			code       codes.Code
		}{
			"no key":          {"", "alice", codes.InvalidArgument},
			"more than 4 MiB": {"user_id", strings.Repeat("x", 4<<20), codes.ResourceExhausted},
			"a large key":     {huge, "alice", codes.OK},
		} {
			if _, err := ask(c.key, c.value); status.Code(err) != c.code {
				t.Errorf("%s: %.200v, want %v", what, err, c.code)
			}
		}
		for hits, want := range map[uint64]ratelimitv3.RateLimitResponse_Code{
			1: ratelimitv3.RateLimitResponse_OK, 1 << 52: ratelimitv3.RateLimitResponse_OVER_LIMIT, math.MaxUint64: ratelimitv3.RateLimitResponse_OVER_LIMIT,
		} {
			r, err := ask("user_id", fmt.Sprint("greedy for ", hits), hits)
			if err != nil || r.GetOverallCode() != want || r.GetStatuses()[0].GetLimitRemaining() != 0 {
				t.Errorf("%d hits: %v, %v, want %v", hits, r, err, want)
			}
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.HTTP+"/healthcheck", nil)
		must.Succeed(t, err)
		req.Header.Set("x-huge", huge)
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("a header of a megabyte: %s", res.Status)
			}
		}
		mustBeWell(t, w)
	})
}

// Ten thousand users with names of 50 KB take no more memory than ten thousand users with short
// names.
func TestGiantValuesAreNotStored(t *testing.T) {
	onEachStore(t, onceAYear, func(t *testing.T, w *harness.Weir) {
		ask := directCalls(t, w)
		const size, first, all = 50_000, 2_000, 10_000
		giant := strings.Repeat("g", size)
		from := 0
		for i := range all {
			if r, err := ask("user_id", giant+strconv.Itoa(i)); err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
				t.Fatalf("value %d: %v, %v", i, r, err)
			}
			if i == first {
				from = metric(t, w, "process_resident_memory_bytes")
			}
		}
		grown, values := metric(t, w, "process_resident_memory_bytes")-from, (all-first)*size
		t.Logf("%d MiB, and %d MiB more after %d MiB of values", from>>20, grown>>20, values>>20)
		if grown > values/4 {
			t.Errorf("%d bytes of values took %d bytes", values, grown)
		}
		if strings.Contains(harness.MustGet(t, w.HTTP+"/metrics"), giant[:1000]) {
			t.Error("/metrics shows a giant as it is")
		}
		mustBeWell(t, w)
	})
}

// directCalls returns a function that calls Weir directly, without Envoy.
func directCalls(t *testing.T, w *harness.Weir) func(key, value string, hits ...uint64) (*ratelimitv3.RateLimitResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient(w.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	return func(key, value string, hits ...uint64) (*ratelimitv3.RateLimitResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		d := &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
		for _, n := range hits {
			d.HitsAddend = wrapperspb.UInt64(n)
		}
		return client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
			Domain: "weir", Descriptors: []*commonv3.RateLimitDescriptor{d},
		})
	}
}

// mustBeWell checks that no request caused a panic, and that Weir still answers.
func mustBeWell(t *testing.T, w *harness.Weir) {
	t.Helper()
	if n := metric(t, w, "weir_panics_total"); n != 0 {
		t.Errorf("%d panics:\n%s", n, w.Tail())
	}
	if body := harness.MustGet(t, w.HTTP+"/healthcheck"); body != "OK" {
		t.Errorf("/healthcheck: %q", body)
	}
}

func metric(t *testing.T, w *harness.Weir, name string) int {
	t.Helper()
	value, found := harness.MustMetrics(t, w.HTTP)[name]
	if !found {
		t.Fatalf("/metrics has no %s", name)
	}
	return int(value)
}
