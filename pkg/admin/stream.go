package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/explain"
)

type decisionsInput struct {
	Domain  string  `query:"domain" maxLength:"4096" doc:"Only decisions of this domain."`
	Rule    string  `query:"rule" maxLength:"4096" doc:"Only decisions of the rule with this path."`
	Outcome string  `query:"outcome" enum:"allowed,denied,undecided" doc:"Only decisions with this outcome."`
	Entry   string  `query:"entry" maxLength:"8192" example:"user_id=42" doc:"Only decisions whose descriptor contains this entry: a key, or a key, = and a value."`
	Sample  float64 `query:"sample" minimum:"0" maximum:"1" default:"1" doc:"The part of the keys, by a hash of the key, for which decisions are sent. 0 means 1."`
}

// The times of a stream.
const (
	pingInterval = 10 * time.Second // an idle stream gets a comment
	// writeTimeout is for each write: a client that does not read loses its stream. On HTTP/2, the
	// deadline of the last write also ends an idle stream, so it is after the next comment.
	writeTimeout = 2 * pingInterval
	// checkInterval is the time between two checks of the caller's credentials. The stream ends
	// after its token was removed from the file.
	checkInterval = time.Second
)

func (a *API) decisions(_ context.Context, in *decisionsInput) (*huma.StreamResponse, error) {
	if math.IsNaN(in.Sample) { // neither below the minimum nor above the maximum
		return nil, huma.Error422UnprocessableEntity("sample is NaN: want a number from 0 to 1")
	}
	key, value, _ := strings.Cut(in.Entry, "=")
	if key == "" && in.Entry != "" {
		return nil, huma.Error422UnprocessableEntity("entry: the key must not be empty: write key or key=value")
	}
	subscription, err := a.options.Subscribe(api.Filter{
		Domain: in.Domain, Rule: in.Rule, Outcome: in.Outcome, Sample: in.Sample, Entry: explain.Entry{key, value},
	})
	if err != nil {
		return nil, huma.Error503ServiceUnavailable(err.Error())
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		defer subscription.Close()
		r, w := humago.Unwrap(ctx)
		s := stream{w: w, control: http.NewResponseController(w), dropped: subscription.Dropped}
		w.Header().Set("Content-Type", "text/event-stream")
		// The client learns immediately that the stream has begun.
		if s.write(": decisions\n\n") {
			s.send(r.Context(), subscription.C, a.stopping, func() bool { _, ok := a.options.Auth.caller(r); return ok })
		}
	}}, nil
}

// A stream sends events to one client.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	dropped func() int64
	known   int64 // the drops that the client has been sent
}

// send sends decisions until the client leaves, decisions or stopping is closed, or the caller's
// credentials are no longer valid.
func (s *stream) send(ctx context.Context, decisions <-chan api.Decision, stopping <-chan struct{}, valid func() bool) {
	ping, check := time.NewTicker(pingInterval), time.NewTicker(checkInterval)
	defer ping.Stop()
	defer check.Stop()
	for {
		select {
		case d, open := <-decisions:
			if !open || !s.event("decision", d) || !s.drops() {
				return
			}
		case <-ping.C:
			if !s.drops() || !s.write(": ping\n\n") {
				return
			}
		case <-check.C:
			if !valid() {
				return
			}
		case <-ctx.Done():
			return
		case <-stopping:
			return
		}
	}
}

// drops sends the number of dropped decisions if it has changed.
func (s *stream) drops() bool {
	n := s.dropped()
	if n == s.known {
		return true
	}
	s.known = n
	return s.event("dropped", struct {
		Dropped int64 `json:"dropped"`
	}{n})
}

func (s *stream) event(name string, data any) bool {
	text, err := json.Marshal(data)
	return err == nil && s.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

func (s *stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
