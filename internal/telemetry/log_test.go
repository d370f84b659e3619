package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/decisionstream"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/rls"
)

// While the store fails, a release gets OK, and so does a request under a rule in shadow mode.
func TestDecidedRequestsAreNotLoggedAsUndecided(t *testing.T) {
	var out bytes.Buffer
	RequestLog(NewLog(&out, zapcore.InfoLevel, "json"))(&rls.Observation{Code: codes.OK, Err: errors.New("no redis")})
	if line := out.String(); !strings.Contains(line, `"@message":"request decided despite an error of the store"`) || !strings.Contains(line, `"code":"OK"`) {
		t.Errorf("logged %s, want that the request was decided", line)
	}
}

func TestSampledLogGoesOnAfterTheWallClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		clock := &wallClock{}
		log := OncePerSecond(zap.New(core, zap.WithClock(clock))).With(zap.String("field", "kept"))
		log.Error("failed")
		clock.set = -time.Hour
		for range 2 {
			log.Error("failed")
			time.Sleep(time.Second)
		}
		lines := logged.All()
		if len(lines) != 2 {
			t.Fatalf("%d lines, want one in each of two seconds", len(lines))
		}
		if at := lines[1].Time; !at.Equal(lines[0].Time.Add(time.Second-time.Hour)) || len(lines[1].Context) != 1 {
			t.Errorf("the second line is %+v, want the time of the wall clock and one field", lines[1])
		}
	})
}

// A wallClock is the clock of a log. Somebody has set it by set.
type wallClock struct{ set time.Duration }

func (c *wallClock) Now() time.Time                         { return time.Now().Add(c.set) }
func (c *wallClock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

func TestStoreOutageLogsOncePerSecond(t *testing.T) {
	var out bytes.Buffer
	log := NewLog(&out, zapcore.InfoLevel, "json")
	logRequest := RequestLog(log)
	for range 1000 {
		logRequest(&rls.Observation{Code: codes.InvalidArgument, Err: status.Error(codes.InvalidArgument, "bad client")})
	}
	for range 1000 {
		logRequest(&rls.Observation{Code: codes.Unavailable, Err: errors.New("no redis")})
		logRequest(&rls.Observation{})
	}
	// One line a second is logged. Five allow for a machine on which the loop takes four seconds.
	if lines := strings.Count(out.String(), `"error":"no redis"`); lines < 1 || lines > 5 {
		t.Errorf("%d lines for 1000 equal failures, want one a second, whatever else fails", lines)
	}
	for _, want := range []string{`"@timestamp":`, `"code":"Unavailable"`, `"code":"InvalidArgument","error":"bad client"`, `"@message":"request not decided"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %.200s", want, &out)
		}
	}
	out.Reset()
	for range 100 {
		log.Warn("warning about a rule")
	}
	if lines := strings.Count(out.String(), "\n"); lines != 100 {
		t.Errorf("%d lines of 100 warnings of another kind, want 100", lines)
	}
}

type keyError struct{ error }

func (keyError) StoreKey() string { return "w1{alice}" }

func TestKeysAreLoggedAtDebugOnly(t *testing.T) {
	for level, shown := range map[zapcore.Level]bool{zapcore.InfoLevel: false, zapcore.DebugLevel: true} {
		var out bytes.Buffer
		RequestLog(NewLog(&out, level, "text"))(&rls.Observation{Err: keyError{errors.New("WRONGTYPE")}})
		if got := strings.Contains(out.String(), "alice"); got != shown || !strings.Contains(out.String(), "WRONGTYPE") {
			t.Errorf("at level %v: %s", level, &out)
		}
	}
}

func TestLogReportsStoreFailureAndRecovery(t *testing.T) {
	var out bytes.Buffer
	failed, recovered := StoreLog(NewLog(&out, zapcore.InfoLevel, "text"))
	for range 1000 {
		failed(errors.New("no redis"))
		recovered(guard.Outage{Duration: 90 * time.Second, Ops: 12})
	}
	// One line a second of each kind is logged. Three allow for a machine on which the loop takes
	// two seconds.
	lost, back := strings.Count(out.String(), "store failed"), strings.Count(out.String(), "store recovered")
	if lost < 1 || lost > 3 || back < 1 || back > 3 ||
		!strings.Contains(out.String(), "no redis") || !strings.Contains(out.String(), `{"outage_seconds": 90, "fallback_hits": 12}`) {
		t.Errorf("%d failures and %d recoveries logged, want one of each per second:\n%s", lost, back, &out)
	}
}

// Only the level debug shows which user is denied.
func TestDenialsAreLoggedAtDebugOnly(t *testing.T) {
	o := observed(loaded(t, twoLimits), 1, true, limiters.Verdict{}, limiters.Verdict{Allowed: true})
	o.Decisions[0].Entries = []descriptors.Entry{{Key: "user", Value: "alice"}}
	for level, want := range map[zapcore.Level]int{zapcore.InfoLevel: 0, zapcore.DebugLevel: 1} {
		core, logs := observer.New(level)
		RequestLog(zap.New(core))(o)
		if logs.Len() != want {
			t.Errorf("at level %v: %v", level, logs.All())
		}
		for _, line := range logs.All() {
			got := line.ContextMap()
			if got["rule"] != "user" || got["limit"] != "burst" || got["enforced"] != true || !slices.Equal(got["entries"].([]any), []any{"user=alice"}) {
				t.Errorf("%v, want the enforced denial of user=alice by the limit burst of the rule user", got)
			}
		}
	}
}

func TestDenialLogLineHasEveryField(t *testing.T) {
	var out bytes.Buffer
	log := DenialLog(NewLog(&out, zapcore.InfoLevel, "json"))
	log(&decisionstream.Denial{
		Domain: "shop", Rule: "user_id.action=login", Limit: "burst", Algorithm: "funnel", KeyHash: "0123456789abcdef", Enforced: true, Used: 6,
		RetryAfter: 1500 * time.Millisecond, Replica: "weir-0", RulesVersion: "6f1ed002ab559585", Suppressed: 7,
	})
	log(&decisionstream.Denial{RetryAfter: -1})
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var fields map[string]any
		must.Succeed(t, json.Unmarshal([]byte(line), &fields))
		delete(fields, "@timestamp")
		lines = append(lines, fields)
	}
	want := map[string]any{
		"level": "info", "@message": "request denied", "domain": "shop", "rule": "user_id.action=login", "limit": "burst", "algorithm": "funnel",
		"key_hash": "0123456789abcdef", "enforced": true, "penalized": false, "used": 6.0, "retry_after_seconds": 1.5, "replica": "weir-0",
		"rules_version": "6f1ed002ab559585", "suppressed": 7.0,
	}
	if len(lines) != 2 || !maps.Equal(lines[0], want) {
		t.Errorf("%v, want %v", lines, want)
	}
	for _, name := range []string{"retry_after_seconds", "suppressed"} {
		if slices.Contains(slices.Collect(maps.Keys(lines[1])), name) {
			t.Errorf("%s is in the line of hits that never fit: %v", name, lines[1])
		}
	}
}
