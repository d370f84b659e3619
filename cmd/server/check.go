package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weir-rls/weir/internal/cli"
	"github.com/weir-rls/weir/internal/settings"
)

// checkSettings validates the environment as weir serve does, but does not stop at the first fault.
// Checks that depend on an unreadable variable use its default.
func checkSettings() (report cli.SettingsReport) {
	addFaults := func(text string) { report.Faults = append(report.Faults, strings.Split(text, "\n")...) }
	var parsed commands
	parser, err := newParser(&parsed)
	if err != nil {
		addFaults(err.Error())
		return report
	}
	// kong stops at an unreadable variable, and validates the settings once it has read all.
	for unread := true; unread; {
		_, err := parser.Parse([]string{"serve"})
		if err != nil {
			addFaults(argumentError(err, nil))
		}
		unread = ignoreUnreadable(parser, err)
	}
	ineffective, err := parsed.Serve.Ineffective(os.Environ())
	if err = errors.Join(parseSettings(&parsed.Serve.Serve), err); err != nil {
		addFaults(err.Error())
	}
	for _, v := range ineffective {
		report.Warnings = append(report.Warnings, v.Setting+" has no effect: "+v.Reason)
	}
	report.InMemory = parsed.Serve.BackendType == settings.Memory
	return report
}

// ignoreUnreadable makes parser ignore the variable of err. It returns false if err is about none.
func ignoreUnreadable(parser *kong.Kong, err error) (ignored bool) {
	if err == nil {
		return false
	}
	match := fromVariable.FindStringSubmatch(err.Error())
	if match == nil {
		return false
	}
	for _, command := range parser.Model.Children {
		for _, flag := range command.Flags {
			if slices.Contains(flag.Tag.Envs, match[2]) {
				flag.Tag.Envs, ignored = nil, true
			}
		}
	}
	return ignored
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
