package streamdone

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// The cost comes from the response: a header of the upstream, or its size. Without the header,
// Envoy makes no call at the end, and the estimate stays.
func TestSettleWithCostOfResponse(t *testing.T) {
	t.Parallel()
	w := startWeir(t, harness.WeirOptions{Env: []string{"STORE_TIMEOUT=5s"}})
	s := newStack(t, testTimeout, nil, w.GRPC)
	for _, c := range []struct {
		name, path, cost string
		calls, used      int
	}{
		{"header", "/cost", "70", 1, 70},
		{"header above the limit", "/cost", "1500", 1, budget},
		{"header of 0", "/cost", "0", 1, 0},
		{"no header", "/cost", "", 0, 400},
		{"bytes", "/bytes", "", 1, len("status 200")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := request{path: c.path, kind: "budget", user: c.name, estimate: 400}
			st := s.open(t, r)
			s.wantUsed(t, r.kind, r.user, 400, "while the upstream works")
			st.answer(200, c.cost)
			if c.calls == 0 {
				// Envoy makes its calls in order: a call for this request would come before that of
				// the next one.
				next := request{path: "/bytes", kind: "budget", user: "after " + c.name, estimate: 1}
				s.open(t, next).answer(200, "")
				s.rec.awaitDone(t, next.user, 1)
			}
			s.rec.awaitDone(t, r.user, c.calls)
			s.wantUsed(t, r.kind, r.user, c.used, "after the end")
		})
	}
}

// Estimates are off by up to 80 %, clients leave, and replicas are killed. At the end, the counter
// of a fixed window is the sum of the settled costs and of the estimates that were not settled. A
// call that was lost may have counted or not, so that the sum is an interval. Without kills it is
// exact.
func TestCounterEqualsSettledCostsAndUnsettledEstimates(t *testing.T) {
	t.Parallel()
	for _, kills := range []int{0, 4} {
		t.Run(fmt.Sprint(kills, " kills"), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			ports := harness.MustFreePorts(t, 3)
			var weirs []*harness.Weir
			var addrs []string
			for _, port := range ports {
				weirs = append(weirs, startWeir(t, reserving(redis.Addr, port)))
				addrs = append(addrs, weirs[len(weirs)-1].GRPC)
			}
			s := newStack(t, testTimeout, denyOnFailure(t), addrs...)
			outcomes := s.load(t, 16, 2*time.Second, enoughSpent, s.spend, func() {
				for n := range kills {
					at := n % len(weirs)
					time.Sleep(100 * time.Millisecond)
					weirs[at].Kill()
					weirs[at] = startWeir(t, reserving(redis.Addr, ports[at]))
				}
			})
			// Envoy may make the last settlements after its clients have left, also between the two
			// readings.
			var used, least, most int
			defer func() { t.Logf("%v; %d charged, want %d to %d", outcomes, used, least, most) }()
			must.Until(t, "the counter to be the sum of the calls", func() bool {
				s.awaitCalls(t)
				least, most = s.expected()
				used = s.used(t, "large", loadUser)
				return least <= used && used <= most
			})
			if kills == 0 && least != most {
				t.Errorf("the sum is %d to %d, although no call was lost", least, most)
			}
			if !enoughSpent(outcomes) {
				t.Errorf("%v: this load tests too little", outcomes)
			}
		})
	}
}

func reserving(redis string, port int) harness.WeirOptions {
	return harness.WeirOptions{Redis: redis, Port: port, Env: []string{"STORE_TIMEOUT=5s"}}
}

// awaitCalls waits until every call that Envoy made has ended.
func (s *stack) awaitCalls(t *testing.T) {
	t.Helper()
	must.Until(t, "the end of all calls", func() bool {
		for _, c := range s.rec.all() {
			if c.ended.IsZero() {
				return false
			}
		}
		return true
	})
}

// enoughSpent reports whether requests were served and clients left.
func enoughSpent(outcomes map[string]int) bool { return outcomes["200"] >= 100 && outcomes["left"] > 0 }

// spend sends one request with an estimate that is off by up to 80 %. Of ten clients one leaves
// while the upstream works.
func (s *stack) spend(t *testing.T, name string, random *rand.Rand) string {
	// At the end of a request without a response, /cost has no cost and Envoy makes no call;
	// /settle has one.
	path := []string{"/cost", "/settle"}[random.IntN(2)]
	actual := 1 + random.IntN(1000)
	estimate := max(1, actual*(20+random.IntN(161))/100)
	leaves := random.IntN(10) == 0
	return s.sendLoad(t, path, name, map[string]string{
		"x-kind": "large", "x-work": strconv.Itoa(5 + random.IntN(20)),
		"x-estimate": strconv.Itoa(estimate), "x-actual": strconv.Itoa(actual), "x-cost": strconv.Itoa(actual),
	}, func(ended <-chan struct{}) string {
		if leaves && s.reachesUpstream(name, ended) {
			return "left"
		}
		return ""
	})
}

// expected returns the bounds of the charged cost by the calls of Envoy and their answers.
func (s *stack) expected() (least, most int) {
	type reservation struct{ least, most int }
	all := map[string]*reservation{}
	for _, c := range s.rec.all() {
		r := all[c.id]
		switch {
		case !c.done && c.err == nil && !c.overLimit():
			all[c.id] = &reservation{c.hits(), c.hits()}
		case !c.done && inDoubt(c.err):
			all[c.id] = &reservation{0, c.hits()}
		case !c.done: // denied, not sent, or canceled and ended by Weir
		case r == nil: // a settlement of nothing
		case c.err == nil && r.least > 0:
			r.least, r.most = c.hits(), c.hits()
		case c.err == nil:
			r.most = c.hits()
		case inDoubt(c.err):
			r.least, r.most = min(r.least, c.hits()), max(r.most, c.hits())
		}
	}
	for _, r := range all {
		least, most = least+r.least, most+r.most
	}
	return least, most
}

// inDoubt reports whether a call failed after it may have reached a Weir, which was killed before
// it answered.
func inDoubt(err error) bool {
	return status.Code(err) == codes.Unavailable && !strings.Contains(err.Error(), "while dialing")
}
