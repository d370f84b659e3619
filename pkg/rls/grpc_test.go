package rls

import (
	"errors"
	"strings"
	"sync"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// A rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	wire, ok := v.([]byte)
	if !ok {
		return nil, errors.New("want bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(wire)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Envoy gets INVALID_ARGUMENT for a request that cannot be decoded, and the request is counted and
// logged.
func TestMalformedRequestIsCountedAndInvalidArgument(t *testing.T) {
	var mu sync.Mutex
	var observed []Observation
	s := New(decide.New(parsed(t, rules), limiterstest.NewReference(), decide.Options{}), Options{Observe: func(o *Observation) {
		mu.Lock()
		defer mu.Unlock()
		observed = append(observed, Observation{Code: o.Code, Err: o.Err, Protocol: o.Protocol, Undecoded: o.Undecoded})
	}})
	server := grpc.NewServer(grpc.ForceServerCodecV2(Codec()))
	receiver := grpcmessage.Receiver{Codec: Codec()}
	server.RegisterService(s.ServiceDesc(receiver.Receive, openGate{}), s)
	client := grpctest.Serve(t, server)
	for wire, want := range map[string]string{
		"\xff\xff":        "malformed request: invalid protobuf",
		"\x0a\x05ugc":     "malformed request: invalid protobuf",
		"\x0a\x04ugc\xff": "malformed request: invalid UTF-8",
		"\x0a\x03ugc":     "descriptor list must not be empty",
	} {
		observed = nil
		var response []byte
		err := client.Invoke(t.Context(), ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName, []byte(wire), &response,
			grpc.ForceCodecV2(rawCodec{}))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want INVALID_ARGUMENT with %q", wire, err, want)
		}
		if len(observed) != 1 || observed[0].Code != codes.InvalidArgument || observed[0].Err == nil || observed[0].Protocol != GRPC {
			t.Errorf("%q: observed %+v, want one INVALID_ARGUMENT", wire, observed)
		} else if malformed := strings.HasPrefix(want, "malformed"); observed[0].Undecodable() != malformed {
			t.Errorf("%q: undecodable %v, want %v", wire, observed[0].Undecodable(), malformed)
		}
	}
}
