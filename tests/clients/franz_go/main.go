// Produces the values of the order on standard input to a topic by franz-go, consumes them, and prints them one a line.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type order struct {
	Bootstrap   string
	Topic       string
	Values      []string
	Authority   string // PEM file; empty without TLS
	Certificate string // PEM file with a key; empty without one
	Mechanism   string // empty without SASL
	User        string
	Password    string
	IsToken     bool   // user and password are a delegation token's
	Bearer      string // the token of OAUTHBEARER
	Seconds     int
}

func (o order) tls() *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	text, err := os.ReadFile(o.Authority)
	check(err)
	config.RootCAs.AppendCertsFromPEM(text)
	if o.Certificate != "" {
		own, err := tls.LoadX509KeyPair(o.Certificate, o.Certificate)
		check(err)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func (o order) options() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(o.Bootstrap), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic(o.Topic),
		kgo.ConsumeTopics(o.Topic), kgo.ConsumerGroup(o.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if o.Authority != "" {
		options = append(options, kgo.DialTLSConfig(o.tls()))
	}
	secret := scram.Auth{User: o.User, Pass: o.Password, IsToken: o.IsToken}
	switch o.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: o.User, Pass: o.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(secret.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(secret.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: o.Bearer}.AsMechanism()))
	}
	return options
}

func main() {
	var o order
	check(json.NewDecoder(os.Stdin).Decode(&o))
	context, cancel := context.WithTimeout(context.Background(), time.Duration(o.Seconds)*time.Second)
	defer cancel()
	client, err := kgo.NewClient(o.options()...)
	check(err)
	defer client.Close()
	check(client.Ping(context))
	for _, value := range o.Values {
		check(client.ProduceSync(context, kgo.StringRecord(value)).FirstErr())
	}
	for seen := 0; seen < len(o.Values); {
		fetches := client.PollFetches(context)
		check(fetches.Err0())
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			seen++
		})
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
