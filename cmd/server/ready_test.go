package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/redistest"
)

func TestReadinessReportsEachChangeOnce(t *testing.T) {
	r := &readiness{}
	var reported []bool
	r.onChange(func(ready bool) { reported = append(reported, ready) })
	for _, f := range []func(){r.setRulesReady, r.setRulesReady, r.setStoreReady, r.setRulesReady, r.setStoreReady, r.stop, r.stop, r.setRulesReady} {
		f()
	}
	if want := []bool{false, true, false}; !slices.Equal(reported, want) || r.isReady() {
		t.Errorf("reported %v, want %v", reported, want)
	}
}

// messages returns the messages of the log so far, in order.
func (s *server) messages() (all []string) {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	for _, line := range s.log.all {
		_, rest, _ := strings.Cut(line, `"@message":"`)
		message, _, _ := strings.Cut(rest, `"`)
		all = append(all, message)
	}
	return all
}

func TestReadyIsLoggedOnceAfterListening(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	none := filepath.Join(t.TempDir(), "none")
	for name, settings := range map[string][]string{
		"memory":             {"CONFIG_PATH=" + rulesFile(t)},
		"Redis":              {"CONFIG_PATH=" + rulesFile(t), "REDIS_URL=" + redis.Addr},
		"forced to be ready": {"CONFIG_PATH=" + none, "FORCE_START_WITHOUT_INITIAL_CONFIG=true"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, settings...)
			s.awaitHealthy()
			s.log.await(t, 0, `"@message":"ready"`)
			s.terminate(1)
			s.log.await(t, 0, `"@message":"stopped"`)
			all := s.messages()
			ready := slices.Index(all, "ready")
			if ready < slices.Index(all, "listening") || slices.Contains(all[ready+1:], "ready") {
				t.Errorf("want one ready after listening, logged %q", all)
			}
		})
	}
}

func TestReadyIsNotLoggedBeforeRulesAndStore(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+redistest.FreeAddr(t))
	s.log.await(t, 0, "redis does not answer")
	s.terminate(1)
	s.log.await(t, 0, `"@message":"stopped"`)
	if all := s.messages(); slices.Contains(all, "ready") {
		t.Errorf("without Redis: logged %q", all)
	}
	code, printed := runWeir("--log-format=json", "--config="+filepath.Join(t.TempDir(), "none"))
	if code != 1 || strings.Contains(printed, `"ready"`) {
		t.Errorf("without rules: exit code %d, printed %s", code, printed)
	}
}
