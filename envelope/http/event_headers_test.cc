#include "envelope/http/event_headers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::envelope {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

Attributes Created() {
  return {{"event_id", "0190d1f2-0000-7000-8000-000000000001"},
          {"event_type", "VideoCreated"},
          {"aggregate_type", "video"},
          {"aggregate_id", "v 1"},
          {"version", "3"},
          {"schema_version", "1"},
          {"occurred_at", "2026-01-01T00:00:00.000000Z"},
          {"content_type", "application/json"},
          {"topic", "catalog.videos"},
          {"sequence", "17"},
          {"tenant_id", "acme"},
          {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
          {"tracestate", "a=b, c=d"}};
}

std::vector<std::string> Plain(const Attributes& attributes) {
  return EventHeaders(attributes, HttpFormat::kPlain, "").value();
}
std::vector<std::string> Cloud(const Attributes& attributes, const char* source = "") {
  return EventHeaders(attributes, HttpFormat::kCloudEvents, source).value();
}

TEST(EventHeaders, PlainNamesEveryAttribute) {
  EXPECT_THAT(
      Plain(Created()),
      UnorderedElementsAre(
          "Content-Type: application/json", "Idempotency-Key: 0190d1f2-0000-7000-8000-000000000001",
          "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          "tracestate: a=b, c=d", "Lockstep-Event-Id: 0190d1f2-0000-7000-8000-000000000001",
          "Lockstep-Event-Type: VideoCreated", "Lockstep-Aggregate-Type: video",
          "Lockstep-Aggregate-Id: v%201", "Lockstep-Version: 3", "Lockstep-Schema-Version: 1",
          "Lockstep-Occurred-At: 2026-01-01T00:00:00.000000Z", "Lockstep-Topic: catalog.videos",
          "Lockstep-Sequence: 17", "Lockstep-Tenant-Id: acme"));
}

TEST(EventHeaders, CloudEventsNamesWhatTheSpecificationAsksFor) {
  EXPECT_THAT(
      Cloud(Created()),
      UnorderedElementsAre(
          "Content-Type: application/json", "Idempotency-Key: 0190d1f2-0000-7000-8000-000000000001",
          "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          "tracestate: a=b, c=d", "ce-specversion: 1.0", "ce-source: /catalog.videos",
          "ce-id: 0190d1f2-0000-7000-8000-000000000001", "ce-type: VideoCreated",
          "ce-subject: v%201", "ce-time: 2026-01-01T00:00:00.000000Z",
          "ce-traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
          "ce-tracestate: a=b,%20c=d", "ce-aggregatetype: video", "ce-aggregateversion: 3",
          "ce-schemaversion: 1", "ce-topic: catalog.videos", "ce-outboxsequence: 17",
          "ce-tenantid: acme"));
  EXPECT_THAT(Cloud(Created(), "https://catalog.example/v1"),
              Contains("ce-source: https://catalog.example/v1"));
}

TEST(EventHeaders, NoValueCanBeMoreThanAValue) {
  Attributes event = Created();
  event["note"] = "a\r\nX-Evil: 1\0b\x7F\xC3\xA4 \"%";
  event["traceparent"] = "00-1\r\nX-Evil: 1";
  for (const auto& headers : {Plain(event), Cloud(event)}) {
    for (const std::string& header : headers) {
      EXPECT_EQ(header.find_first_of("\r\n"), std::string::npos) << header;
    }
    EXPECT_THAT(headers, Not(Contains(StartsWith("traceparent:"))));
  }
  EXPECT_THAT(Plain(event), Contains("Lockstep-Note: a%0D%0AX-Evil:%201"));
  event["note"] = std::string("\x7F\xC3\xA4 \"%");
  EXPECT_THAT(Plain(event), Contains("Lockstep-Note: %7F%C3%A4%20%22%25"));
}

TEST(EventHeaders, NoAttributeTakesThePlaceOfAnother) {
  Attributes event = Created();
  event["Event_Id"] = "forged";
  event["event-id"] = "forged";
  event["signature"] = "forged";
  event["Signature"] = "forged";
  event["a\r\nb"] = "1";
  event["fooBar"] = "2";
  event["foobar"] = "3";
  const auto headers = Plain(event);
  EXPECT_THAT(headers, Contains("Lockstep-Event-Id: 0190d1f2-0000-7000-8000-000000000001"));
  EXPECT_THAT(headers, Contains("Lockstep-%45vent-%49d: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-Event%2Did: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-%73%69%67%6E%61%74%75%72%65: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-%53ignature: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-A%0D%0Ab: 1"));
  EXPECT_THAT(headers, Contains("Lockstep-FooBar: 2"));
}

TEST(EventHeaders, WhatCanBeNoExtensionGoesBesideTheCloudEvent) {
  Attributes event = Created();
  event["trace_id"] = "1";
  event["Trace-Id"] = "2";
  event["source"] = "forged";
  event["data_base64"] = "forged";
  event["subject"] = "forged";
  event["grün"] = "3";
  event["empty"] = "";
  const auto headers = Cloud(event);
  EXPECT_THAT(headers, Contains("ce-traceid: 1"));
  EXPECT_THAT(headers, Contains("Lockstep-Trace%2DId: 2"));
  EXPECT_THAT(headers, Contains("ce-source: /catalog.videos"));
  EXPECT_THAT(headers, Contains("Lockstep-Source: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-Subject: forged"));
  EXPECT_THAT(headers, Contains("Lockstep-Gr%C3%BCn: 3"));
  EXPECT_THAT(headers, Contains("Lockstep-Empty: "));
}

TEST(EventHeaders, RefusesAContentTypeThatIsNoHeader) {
  Attributes event = Created();
  event["content_type"] = "text/plain\r\nX: y";
  EXPECT_FALSE(EventHeaders(event, HttpFormat::kPlain, "").ok());
  event["content_type"] = "";
  EXPECT_FALSE(EventHeaders(event, HttpFormat::kCloudEvents, "").ok());
}

}  // namespace
}  // namespace lockstep::envelope
