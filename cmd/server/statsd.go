package main

import (
	"net"
	"os"
	"strconv"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/statsd"
)

// openStatsd opens the exporter to statsd or dogstatsd, if the settings enable one.
func (e *environment) openStatsd(stats *ratelimitstats.Stats) error {
	s := &e.settings.Stats
	if !s.SendsStatsd() {
		return nil
	}
	to, err := statsdDestination(s)
	if err != nil {
		return err
	}
	e.tasks = append(e.tasks, statsd.New(to, stats, e.metrics.Registry, e.log).Run)
	return nil
}

func statsdDestination(s *settings.Stats) (statsd.Destination, error) {
	to := statsd.Destination{
		Network: s.StatsdProtocol, Address: net.JoinHostPort(s.StatsdHost, strconv.Itoa(int(s.StatsdPort))),
		FlushInterval: s.FlushInterval, Tags: s.Tags,
	}
	var err error
	if s.UseDogStatsd {
		to.Network = "udp"
		to.Dog = true
		to.DogTags = statsd.DogTags(os.Getenv)
		to.Mogrifiers, err = statsd.Mogrifiers(s.Mogrifiers, os.Getenv)
	}
	return to, err
}
