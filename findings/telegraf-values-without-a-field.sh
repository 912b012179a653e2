#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Telegraf 1.37.2's inputs.suricata makes no fields of booleans and of null, and of a list's items only the
# last stays.
#
# Guess before the run: version 2 of the plugin takes all events, so that each member of an event's object is
# a field of its point; a list's items are told apart. Seen: `alerted` of a flow, `stored` and `gaps` of a
# file, `rd` and `ra` of DNS are no fields: each is noted in the plugin's log at the level `debug` and nowhere
# else. Inside of an object that has one, members that come behind it are left out as well, and which these
# are changes from event to event, since Go walks maps by chance. Of `"rrtypes": ["A", "NS"]` the field is NS.
# Version 1 takes no event but `stats` and `alert`, and counts each other one as an error. For an operator:
# count alerts by `event_type: alert`, not by `flow.alerted`; do not build on fields of nested objects with
# booleans in them; give version 1 an output of its own with the types `stats` and `alert`.
#
# Exit 0 while Telegraf does so, 1 when it does otherwise, 2 when it cannot be installed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS="-mod=mod -modcacherw"
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/plugins/inputs/suricata"
)

type account struct {
	telegraf.Accumulator
	points chan map[string]interface{}
	errors chan error
}

func (a account) AddFields(_ string, fields map[string]interface{}, _ map[string]string, _ ...time.Time) {
	a.points <- fields
}
func (a account) AddError(err error) { a.errors <- err }

type log struct{ telegraf.Logger }

func (log) Debugf(string, ...interface{}) {}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// What an event comes to, and the connection, which stays open.
func start(version string) (account, net.Conn) {
	told := account{points: make(chan map[string]interface{}, 100), errors: make(chan error, 100)}
	plugin := &suricata.Suricata{Source: "s" + version, Version: version, Alerts: true, Log: log{}}
	check(plugin.Init())
	check(plugin.Start(told))
	to, err := net.Dial("unix", plugin.Source)
	check(err)
	return told, to
}

func main() {
	told, to := start("2")
	seen := map[string]bool{}
	for range 50 {
		fmt.Fprintln(to, `{"event_type":"flow","flow":{"pkts_toserver":1,"alerted":true,"end":null,"types":["A","NS"],`+
			`"nested":{"a":1,"b":true,"c":1}}}`)
		fields := <-told.points
		seen[fmt.Sprint(fields["nested_a"] != nil, fields["nested_c"] != nil)] = true
		delete(fields, "nested_a")
		delete(fields, "nested_c")
		if fmt.Sprint(fields) != "map[pkts_toserver:1 types:NS]" {
			fmt.Println("other fields:", fields)
			os.Exit(1)
		}
	}
	fmt.Println("50 equal events: fields pkts_toserver and types (NS); forms of the nested object:", len(seen))
	old, to := start("1")
	fmt.Fprintln(to, `{"event_type":"flow","flow":{"pkts_toserver":1}}`)
	fmt.Println("version 1, of a flow:", <-old.errors)
	if len(seen) < 2 {
		os.Exit(1)
	}
}
GO

{ go mod init finding && go mod edit -require github.com/influxdata/telegraf@v1.37.2 && go build -o finding .; } >log 2>&1 || { tail -3 log >&2; exit 2; }
./finding
