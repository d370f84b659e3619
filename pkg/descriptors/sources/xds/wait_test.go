package xds

import (
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weir-rls/weir/internal/backoff"
)

// A server may return right after the begin of an attempt, so the time from one attempt to the next
// bounds how late its rules arrive.
func TestAttemptsAreAtMost10sApart(t *testing.T) {
	for _, waits := range []backoff.Backoff{
		{Initial: time.Second, Max: defaultMaxWait, Jitter: 1},
		{Initial: 3 * time.Second, Max: defaultMaxWait},
		{Initial: time.Hour, Max: defaultMaxWait},
	} {
		w := &watch{waits: waits}
		for failures := range 100 {
			for _, took := range []time.Duration{0, time.Millisecond, 3 * time.Second, defaultConnectTimeout} {
				if apart := took + w.wait(unreachable, failures, took); apart > 10*time.Second {
					t.Errorf("%+v: after %d failures, and an attempt of %v, the next begins after %v", waits, failures, took, apart)
				}
			}
			for _, result := range []connectionResult{silent, useful} {
				if wait := w.wait(result, failures, time.Hour); wait > 10*time.Second {
					t.Errorf("%+v: %v after a stream", waits, wait)
				}
			}
		}
	}
}

func TestFirstWaitAfterAUsefulStreamIsShort(t *testing.T) {
	w := &watch{waits: backoff.Backoff{Initial: 3 * time.Second, Max: time.Minute}}
	if got := w.wait(useful, 10, time.Hour); got != time.Second {
		t.Errorf("%v, want 1s", got)
	}
	w.waits.Initial = 100 * time.Millisecond
	if got := w.wait(useful, 0, time.Hour); got != 100*time.Millisecond {
		t.Errorf("%v, want the initial wait", got)
	}
}

// A server that has replied in time is not asked again. Otherwise it is asked once more, for
// everything.
func TestAnsweredRequestIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		replies time.Duration
		want    int
	}{
		"a reply in time":  {time.Second - 1, 0},
		"a reply too late": {time.Second + 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &recordedStream{replies: c.replies}
				s := &stream{AggregatedDiscoveryService_StreamAggregatedResourcesClient: client}
				stop := s.requestAll("3", time.Second)
				if _, err := s.receive(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				stop()
				if len(client.sent) != c.want {
					t.Errorf("sent %v, want %d requests", client.sent, c.want)
				}
			})
		})
	}
}

// A recordedStream is a stream whose server sends one push, after some time. Its other methods
// panic.
type recordedStream struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	replies time.Duration
	sent    []*discovery.DiscoveryRequest
}

func (s *recordedStream) Send(request *discovery.DiscoveryRequest) error {
	s.sent = append(s.sent, request)
	return nil
}

func (s *recordedStream) Recv() (*discovery.DiscoveryResponse, error) {
	time.Sleep(s.replies)
	return &discovery.DiscoveryResponse{}, nil
}
