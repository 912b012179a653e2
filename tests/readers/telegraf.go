// SPDX-License-Identifier: Apache-2.0

// Telegraf's inputs.suricata as a program: it listens on a socket and says, as JSON, which points it has made of the events that came.
//
//	telegraf SOCKET VERSION
//
// It says `ready` once it listens. The end of standard input ends it, when all that was sent until then was read.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/plugins/inputs/suricata"
)

// Field of the event that is sent behind all others.
const mark = "end_of_test"

// Errors of which the text is kept.
const errorsShown = 5

// account counts what the plugin says. It calls no other method, else the nil interface ends the program.
type account struct {
	telegraf.Accumulator `json:"-"`

	mutex sync.Mutex
	ended chan struct{}
	// Points by measurement and by event type, or thread.
	Points map[string]int `json:"points"`
	// The largest value of each counter, of points of sums.
	Sums   map[string]float64 `json:"sums"`
	Failed int                `json:"failed"`
	Errors []string           `json:"errors"`
	// Notes about values that were left out.
	LeftOut int `json:"left_out"`
}

func (a *account) AddFields(name string, fields map[string]interface{}, tags map[string]string, _ ...time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, ok := fields[mark]; ok {
		close(a.ended)
		return
	}
	kind := tags["event_type"]
	if thread, ok := tags["thread"]; ok {
		kind = "thread"
		if thread == "total" {
			kind = thread
		}
	}
	a.Points[name+"/"+kind]++
	if kind == "total" || kind == "stats" {
		for field, value := range fields {
			if number, ok := value.(float64); ok && number > a.Sums[field] {
				a.Sums[field] = number
			}
		}
	}
}

func (a *account) AddError(err error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.Failed++
	if len(a.Errors) < errorsShown {
		text := err.Error()
		a.Errors = append(a.Errors, text[:min(len(text), 300)])
	}
}

// log is the plugin's log, where it notes what it leaves out.
type log struct {
	telegraf.Logger
	account *account
}

func (l log) Debugf(string, ...interface{}) {
	l.account.mutex.Lock()
	defer l.account.mutex.Unlock()
	l.account.LeftOut++
}

func (l log) Debug(...interface{}) { l.Debugf("") }

func run(socket, version string) error {
	told := &account{ended: make(chan struct{}), Points: map[string]int{}, Sums: map[string]float64{}}
	plugin := &suricata.Suricata{Source: socket, Version: version, Alerts: true, Log: log{account: told}}
	if err := plugin.Init(); err != nil {
		return err
	}
	if err := plugin.Start(told); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	// The plugin takes the next connection once it has read the one before to its end.
	last, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(last, `{"event_type":"stats","stats":{"%s":1}}`+"\n", mark); err != nil {
		return err
	}
	select {
	case <-told.ended:
	case <-time.After(time.Minute):
		return fmt.Errorf("the plugin does not read what was sent last; it has said: %v", told.Errors)
	}
	told.mutex.Lock()
	err = json.NewEncoder(os.Stdout).Encode(told)
	told.mutex.Unlock()
	plugin.Stop()
	return err
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: telegraf SOCKET VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "telegraf:", err)
		os.Exit(1)
	}
}
