package rls

import (
	"io"
	"net/http"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// MaxBody bounds the body of a request by HTTP, in bytes. It is no bound for Envoy's own, by gRPC: these hold what a client sent
// once for each descriptor, and who sends too much must not pass for it.
const MaxBody = 256 << 10

// ServeHTTP answers a RateLimitRequest in JSON with a RateLimitResponse in JSON, as envoyproxy/ratelimit does under /json:
// 200 for OK, 429 for OVER_LIMIT. A request that cannot be meant is 400; a store that does not answer is 503.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var request ratelimitv3.RateLimitRequest
	if err != nil || protojson.Unmarshal(body, &request) != nil {
		http.Error(w, "Bad Request", http.StatusBadRequest)
		return
	}
	response, err := s.decideMessage(r.Context(), &request, false)
	switch status.Code(err) {
	case codes.OK:
	case codes.InvalidArgument:
		http.Error(w, "Bad Request", http.StatusBadRequest)
		return
	default:
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		return
	}
	text, err := protojson.Marshal(response)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == codeOverLimit {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}
