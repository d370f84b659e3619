package rls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// MaxBodyBytes bounds the body of an HTTP request. The bound of gRPC is higher, because Envoy
// repeats client data in every descriptor, and a request rejected as too large may bypass the
// limit.
const MaxBodyBytes = 256 << 10

// ServeHTTP answers a RateLimitRequest in JSON with a RateLimitResponse in JSON, like /json of
// envoyproxy/ratelimit. The status is 200 for OK, 429 for OVER_LIMIT, 400 for an invalid request
// with the reason in the body, and 503 if there is no decision.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wire, err := s.readJSON(w, r)
	e := newExchange() // after the body, which may arrive slowly
	e.observation.Protocol = JSON
	if err != nil {
		e.decodeErr = malformedStatus(withoutQuote(err))
		if errors.Is(err, errBodyCanceled) {
			e.decodeErr = status.Error(codes.Canceled, err.Error())
		}
		_, _ = s.handle(r.Context(), e)
		badRequest(w, err.Error())
		return
	}
	e.decodeErr = malformedStatus(e.message.unmarshal(wire))
	wire, err = s.handle(r.Context(), e)
	switch status.Code(err) {
	case codes.OK:
	case codes.InvalidArgument:
		badRequest(w, status.Convert(err).Message())
		return
	default:
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
		return
	}
	var response ratelimitv3.RateLimitResponse
	if err := proto.Unmarshal(wire, &response); err != nil {
		internalError(w)
		return
	}
	text, err := protojson.Marshal(&response)
	if err != nil {
		internalError(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.GetOverallCode() == codeOverLimit {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}

func internalError(w http.ResponseWriter) {
	http.Error(w, "Internal Server Error", http.StatusInternalServerError)
}

func badRequest(w http.ResponseWriter, reason string) {
	http.Error(w, "Bad Request: "+reason, http.StatusBadRequest)
}

// readJSON reads a request from the body and returns it in wire format. Its error is shown to the
// client.
func (s *Service) readJSON(w http.ResponseWriter, r *http.Request) (wire []byte, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(underlying(w), r.Body, MaxBodyBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, fmt.Errorf("the body has more than %d bytes: send fewer descriptors in one request", MaxBodyBytes)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errors.New("the body did not arrive in time: check its Content-Length, and send it without pauses")
	case isClosed(err):
		return nil, errBodyCanceled
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	// Three bytes of JSON can become an object of a hundred, so only a few bodies are parsed at a
	// time.
	select {
	case s.parsing <- struct{}{}:
		defer func() { <-s.parsing }()
	case <-r.Context().Done():
		return nil, errBodyCanceled
	}
	return parseJSON(body)
}

// isClosed reports whether err, of a read, means that the connection is closed.
func isClosed(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, new(*net.OpError))
}

// Errors of a body. The text of an error that wraps one of the last two may quote the body.
var (
	errBodyCanceled = errors.New("the client left before its body was parsed")
	errUnreadable   = errors.New("cannot read the body")
	errNotARequest  = errors.New("not a RateLimitRequest")
)

// withoutQuote returns an error for the log in place of err, which may quote the body.
func withoutQuote(err error) error {
	for _, plain := range []error{errUnreadable, errNotARequest} {
		if errors.Is(err, plain) {
			return fmt.Errorf("%w: only the response to the client names the fault, because it may quote the body", plain)
		}
	}
	return err
}

// underlying returns the ResponseWriter of net/http in w. [http.MaxBytesReader] needs it to tell
// the server that a body was cut. The server then lets the client read the response before it
// closes the connection.
func underlying(w http.ResponseWriter) http.ResponseWriter {
	for {
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = wrapper.Unwrap()
	}
}

// maxFaultBytes bounds the text of a fault, which quotes the body.
const maxFaultBytes = 200

// parseJSON converts a request from JSON to wire format.
func parseJSON(body []byte) (wire []byte, err error) {
	var request ratelimitv3.RateLimitRequest
	err = protojson.Unmarshal(body, &request)
	if err == nil {
		return proto.Marshal(&request)
	}
	fault := strings.TrimSpace(strings.TrimPrefix(err.Error(), "proto:")) // contains the line and the column
	if len(bytes.TrimSpace(body)) == 0 {
		fault = "the body is empty"
	}
	return nil, fmt.Errorf("%w: %s: write one such as %s", errNotARequest, descriptors.Truncate(fault, maxFaultBytes),
		`{"domain":"shop","descriptors":[{"entries":[{"key":"user_id","value":"42"}],"hits_addend":1}]}`)
}

// ParseRequest parses a RateLimitRequest in JSON as [Service.ServeHTTP] does. Its error is shown to
// the sender. It does not validate what [decide.Decider.Decide] validates.
func ParseRequest(body []byte) (*decide.Request, error) {
	wire, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	var m message
	if err := m.unmarshal(wire); err != nil {
		return nil, err
	}
	request := new(decide.Request)
	return request, m.toRequest(request)
}
