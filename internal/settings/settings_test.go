package settings

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
)

func usual() Serve {
	return Serve{
		LogLevel: "info", LogFormat: "text", StoreTimeout: time.Second, StopTimeout: time.Second,
		RedisPoolSize: 1, MemoryMaxKeys: 1, MemoryMaxBytes: 1,
		RuntimeRoot: "/data", RuntimeSubdirectory: "ratelimit", RuntimeAppdirectory: "config",
	}
}

func TestTheStoreIsMemoryUnlessARedisIsNamed(t *testing.T) {
	for _, c := range []struct{ backend, url, wantBackend, wantURL string }{
		{"", "", "memory", ""},
		{"", "localhost:6379", "redis", "localhost:6379"},
		{"redis", "", "redis", RedisSocket},
		{"REDIS", "", "redis", RedisSocket},
		{"Redis", "localhost:6379", "redis", "localhost:6379"},
		{"memory", "localhost:6379", "memory", "localhost:6379"},
	} {
		s := usual()
		s.BackendType, s.RedisURL = c.backend, c.url
		if err := s.Validate(); err != nil || s.BackendType != c.wantBackend || s.RedisURL != c.wantURL {
			t.Errorf("BACKEND_TYPE=%q REDIS_URL=%q: %q %q, %v", c.backend, c.url, s.BackendType, s.RedisURL, err)
		}
	}
}

func TestAllFaultsAreToldAtOnceWithTheirVariables(t *testing.T) {
	s := Serve{BackendType: "disk", RedisSocketType: "carrier pigeon", LogLevel: "loud", LogFormat: "xml", DrainDelay: -1}
	err := s.Validate()
	if err == nil {
		t.Fatal("no fault was found")
	}
	for _, variable := range []string{"BACKEND_TYPE", "REDIS_SOCKET_TYPE", "LOG_LEVEL", "LOG_FORMAT", "STORE_TIMEOUT", "STOP_TIMEOUT",
		"REDIS_POOL_SIZE", "MEMORY_MAX_KEYS", "MEMORY_MAX_BYTES", "DRAIN_DELAY"} {
		if strings.Count(err.Error(), variable+": ") != 1 {
			t.Errorf("%s is not told once in\n%v", variable, err)
		}
	}
}

func TestWhereTheRulesLie(t *testing.T) {
	s := usual()
	if got := s.Rules(); got != "/data/ratelimit/config" {
		t.Errorf("%q", got)
	}
	s.Config = "rules.yaml"
	if got := s.Rules(); got != "rules.yaml" {
		t.Errorf("with --config: %q", got)
	}
}

func TestLevelsOfTheIncumbentAreTakenForTheNearest(t *testing.T) {
	for name, want := range map[string]zapcore.Level{
		"debug": zapcore.DebugLevel, "trace": zapcore.DebugLevel, "INFO": zapcore.InfoLevel,
		"warn": zapcore.WarnLevel, "Warning": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
		"fatal": zapcore.ErrorLevel, "panic": zapcore.ErrorLevel,
	} {
		if got, err := (&Serve{LogLevel: name}).Level(); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "loud"} {
		if _, err := (&Serve{LogLevel: name}).Level(); err == nil {
			t.Errorf("%q is taken for a level", name)
		}
	}
}
