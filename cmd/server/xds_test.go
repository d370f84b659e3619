package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// A controlPlane sends pushes to one client and receives its replies.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	pushes  chan *discovery.DiscoveryResponse
	replies chan *discovery.DiscoveryRequest
}

// startControlPlane serves on the returned address until the end of the test.
func startControlPlane(t *testing.T) (plane *controlPlane, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	plane = &controlPlane{t: t, pushes: make(chan *discovery.DiscoveryResponse), replies: make(chan *discovery.DiscoveryRequest, 100)}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, plane)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return plane, listener.Addr().String()
}

func (p *controlPlane) StreamAggregatedResources(to discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	go func() {
		for {
			request, err := to.Recv()
			if err != nil {
				return
			}
			p.replies <- request
		}
	}()
	for {
		select {
		case push := <-p.pushes:
			if err := to.Send(push); err != nil {
				return err
			}
		case <-to.Context().Done():
			return nil
		}
	}
}

// push sends the rules of the domain ugc, which allow each user a number of requests in a year. It
// returns the text with which the client rejects them, if it does.
func (p *controlPlane) push(version string, perYear uint32) (rejection string) {
	p.t.Helper()
	value, err := proto.Marshal(&conf.RateLimitConfig{Name: "ugc", Domain: "ugc", Descriptors: []*conf.RateLimitDescriptor{{
		Key: "user_id", RateLimit: &conf.RateLimitPolicy{Unit: conf.RateLimitUnit_YEAR, RequestsPerUnit: perYear},
	}}})
	must.Succeed(p.t, err)
	return p.pushAll(version, &anypb.Any{TypeUrl: xds.TypeURL, Value: value})
}

// pushAll is push for any resources.
func (p *controlPlane) pushAll(version string, resources ...*anypb.Any) (rejection string) {
	p.t.Helper()
	nonce := "nonce " + version
	select {
	case p.pushes <- &discovery.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: xds.TypeURL, Resources: resources}:
	case <-time.After(time.Minute):
		p.t.Fatal("no client takes the push")
	}
	reply := p.await("a reply to the push", func(r *discovery.DiscoveryRequest) bool { return r.GetResponseNonce() == nonce })
	return reply.GetErrorDetail().GetMessage()
}

// await returns the next matching request of the client.
func (p *controlPlane) await(what string, matches func(*discovery.DiscoveryRequest) bool) *discovery.DiscoveryRequest {
	p.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case request := <-p.replies:
			if matches(request) {
				return request
			}
		case <-deadline:
			p.t.Fatalf("the client does not send %s", what)
		}
	}
}

// Rules that only the overlay made faulty come into force with the next overlay, and are saved. The
// server may then return to the rules before them.
func TestCorrectedOverlayPutsRejectedRulesInForce(t *testing.T) {
	t.Parallel()
	plane, address := startControlPlane(t)
	dir := t.TempDir()
	overlay, saved := filepath.Join(dir, "overlay.yaml"), filepath.Join(dir, "rules.json")
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {algorithm: sliding_log}}\n")
	environment := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_OVERLAY=" + overlay, "CONFIG_GRPC_XDS_RULES_FILE=" + saved}
	s := startServer(t, append(environment, "CONFIG_GRPC_XDS_SERVER_URL="+address, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
	if rejection := plane.push("1", 5); rejection != "" {
		t.Fatal(rejection)
	}
	if rejection := plane.push("2", 2_000_000); !strings.Contains(rejection, "the overlay sets 'algorithm'") {
		t.Errorf("rejected with %q, want the fault of the overlay", rejection)
	}
	if got := s.remaining("alice"); got != 5 {
		t.Errorf("%d left under the old rules, want 5", got)
	}

	write(t, overlay, "domain: ugc\n")
	_, seen := s.log.await(t, 0, "rules loaded") // the first push
	s.log.await(t, seen, "rules loaded")
	if got := s.remaining("bob"); got != 2_000_000 {
		t.Errorf("%d left with the corrected overlay, want 2000000", got)
	}
	must.Until(t, "a file with the corrected rules", func() bool {
		text, _ := os.ReadFile(saved)
		return strings.Contains(string(text), "2000000")
	})
	restarted := startServer(t, append(environment, "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1")...)
	if got := restarted.remaining("carol"); got != 2_000_000 {
		t.Errorf("%d left after a restart without the control plane, want 2000000", got)
	}

	if rejection := plane.push("3", 5); rejection != "" {
		t.Error(rejection)
	}
	if got := s.remaining("dave"); got != 5 {
		t.Errorf("%d left, want 5: the server has returned to its first rules", got)
	}
}

// The log and the metrics report a push that cannot be read.
func TestUnreadablePushIsAFailedLoad(t *testing.T) {
	t.Parallel()
	plane, address := startControlPlane(t)
	s := startServer(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	if rejection := plane.push("1", 5); rejection != "" {
		t.Fatal(rejection)
	}
	if rejection := plane.pushAll("2", &anypb.Any{}); rejection == "" {
		t.Error("a resource without a type is accepted")
	}
	if line, _ := s.log.await(t, 0, "rules not loaded"); !strings.Contains(line, "resource 1 of 1") {
		t.Errorf("logged %s, want the resource", line)
	}
	if got := s.metric("weir_rules_last_load_successful"); got != "0" {
		t.Errorf("weir_rules_last_load_successful is %s, want 0", got)
	}
}

// Weir starts with the rules of the file while the control plane is unreachable, and is ready. A
// file with faults is not used.
func TestStartWithReceivedRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.json")
	save := func(rules string) { write(t, path, fmt.Sprintf(`{"files": [{"name": "ugc", "rules": %q}]}`, rules)) }
	save(rules)
	environment := []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1", "CONFIG_GRPC_XDS_RULES_FILE=" + path}
	s := startServer(t, environment...)
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	s.log.await(t, 0, "saved xDS rules are in force")

	save(rules + "limits: 3\n")
	s = startServer(t, append(environment, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
	if line, _ := s.log.await(t, 0, "rules not loaded"); !strings.Contains(line, `"source":"`+path+`"`) {
		t.Errorf("want %s as the source: %s", path, line)
	}
	if _, err := s.call("alice"); err == nil {
		t.Error("rules with faults are in force")
	}
}

// A stop saves the rules that an earlier attempt could not save.
func TestStopSavesReceivedRules(t *testing.T) {
	t.Parallel()
	plane, address := startControlPlane(t)
	path := filepath.Join(t.TempDir(), "state", "rules.json")
	s := startServer(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "CONFIG_GRPC_XDS_RULES_FILE="+path,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "DRAIN_DELAY=0s")
	if rejection := plane.push("1", 5); rejection != "" {
		t.Fatal(rejection)
	}
	s.log.await(t, 0, "received rules not saved")
	must.Succeed(t, os.Mkdir(filepath.Dir(path), 0o700))
	s.stop()
	if text := string(must.Read(t, path)); !strings.Contains(text, "user_id") {
		t.Errorf("saved %s, want the rules of the push", text)
	}
}

// A control plane that deleted its last rule while Weir was down has an empty version, and does not
// reply to a client that has none.
func TestDeletedXDSRulesEndAfterRestart(t *testing.T) {
	t.Parallel()
	plane, address := startControlPlane(t)
	path := filepath.Join(t.TempDir(), "rules.json")
	write(t, path, fmt.Sprintf(`{"files": [{"name": "ugc", "rules": %q}]}`, rules))
	s := startServer(t, "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+address, "CONFIG_GRPC_XDS_RULES_FILE="+path)
	s.log.await(t, 0, "saved xDS rules are in force")
	plane.await("a request for everything", func(r *discovery.DiscoveryRequest) bool { return r.GetVersionInfo() == "?" })
	if rejection := plane.pushAll(""); rejection != "" {
		t.Error(rejection)
	}
	reply, err := s.call("alice")
	if err != nil || reply.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("the reply is %v, %v, want no limit", reply, err)
	}
}
