// Serves franz-go's fake cluster on given ports of the loopback until a signal ends it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	data := flag.String("data", "", "folder for its data")
	var ports []int
	flag.Func("ports", "one port a node, as 9092,9093", func(text string) error {
		for _, word := range strings.Split(text, ",") {
			port, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			ports = append(ports, port)
		}
		return nil
	})
	configs := map[string]string{}
	var options []kfake.Opt
	flag.Func("config", "a broker property, as name=value", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		switch name { // two have options of their own
		case "auto.create.topics.enable":
			if value == "true" {
				options = append(options, kfake.AllowAutoTopicCreation())
			}
		case "num.partitions":
			count, err := strconv.Atoi(value)
			options = append(options, kfake.DefaultNumPartitions(count))
			return err
		default:
			configs[name] = value
		}
		return nil
	})
	flag.Parse()

	cluster, err := kfake.NewCluster(append(options,
		kfake.Ports(ports...),
		kfake.NumBrokers(len(ports)),
		kfake.DataDir(*data),
		kfake.BrokerConfigs(configs),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelInfo)),
	)...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	<-signals
	cluster.Close()
}
