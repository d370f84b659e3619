package differential

import (
	"encoding/json"
	"fmt"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// An answer is the result of a call: a response or an error.
type answer struct {
	response *ratelimitv3.RateLimitResponse
	err      error
}

// String returns the whole answer as text; equal answers have equal texts. It does not include the
// code of an error, because the codes differ intentionally (see the table differences).
func (a answer) String() string {
	if a.err != nil {
		return "error"
	}
	return canonical(a.response)
}

// canonical returns a message as JSON with sorted keys. The text of protojson itself changes from
// build to build.
func canonical(m proto.Message) string {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err.Error()
	}
	if b, err = json.Marshal(v); err != nil {
		return err.Error()
	}
	return string(b)
}

// brief returns the parts of an answer that do not depend on the clock: the overall code, and per
// descriptor the code, the limit and the remaining hits. For an error it returns the gRPC code.
func (a answer) brief() string {
	if a.err != nil {
		return status.Code(a.err).String()
	}
	var b strings.Builder
	b.WriteString(a.response.GetOverallCode().String() + ":")
	for i, s := range a.response.GetStatuses() {
		if i > 0 {
			b.WriteString(" |")
		}
		b.WriteString(" " + s.GetCode().String())
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, " %d/%v", l.GetRequestsPerUnit(), l.GetUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				fmt.Fprintf(&b, "*%d", m.GetValue())
			}
			if l.GetName() != "" {
				b.WriteString(" " + l.GetName())
			}
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		}
	}
	return b.String()
}
