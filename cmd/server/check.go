package main

import (
	"errors"
	"os"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
)

// checkSettings validates the environment as weir serve does.
func checkSettings() cli.SettingsReport {
	var parsed commands
	parser, err := newParser(&parsed)
	if err != nil {
		return cli.SettingsReport{Fault: err.Error()}
	}
	if _, err := parser.Parse([]string{"serve"}); err != nil {
		return cli.SettingsReport{Fault: argumentError(err, nil)}
	}
	err = parseSettings(&parsed.Serve.Serve)
	if err != nil {
		return cli.SettingsReport{Fault: err.Error()}
	}
	ineffective, err := parsed.Serve.Ineffective(os.Environ())
	if err != nil {
		return cli.SettingsReport{Fault: err.Error()}
	}
	report := cli.SettingsReport{InMemory: parsed.Serve.BackendType == settings.Memory}
	for _, v := range ineffective {
		report.Warnings = append(report.Warnings, v.Setting+" has no effect: "+v.Reason)
	}
	return report
}

// parseSettings parses the settings that serve parses only when it opens the part that uses them.
// It opens no file and no connection.
func parseSettings(s *settings.Serve) error {
	var errs []error
	if s.BackendType == settings.Redis {
		_, err := redisURLOptions("REDIS", &s.Redis)
		errs = append(errs, err)
	}
	if s.UsePerSecondRedis {
		_, err := redisURLOptions("REDIS_PERSECOND", &s.PerSecondRedis)
		errs = append(errs, err)
	}
	if s.ServerUseTLS {
		_, err := clientNames(&s.Listeners)
		errs = append(errs, err)
	}
	if !s.DisableStats {
		_, err := statsdDestination(&s.Stats)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
