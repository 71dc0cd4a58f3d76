#pragma once

#include "google/pubsub/v1/pubsub.pb.h"
#include "google/pubsub/v1/schema.pb.h"
#include "pubsub/admin.h"

namespace lockstep::pubsub::grpc_client {

// Between the port's resources and those of google.pubsub.v1.
google::pubsub::v1::Topic ToProto(const Topic& topic);
google::pubsub::v1::Subscription ToProto(const Subscription& subscription);
google::pubsub::v1::Schema ToProto(const Schema& schema);
Topic FromProto(const google::pubsub::v1::Topic& proto);
Subscription FromProto(const google::pubsub::v1::Subscription& proto);
Snapshot FromProto(const google::pubsub::v1::Snapshot& proto);
Schema FromProto(const google::pubsub::v1::Schema& proto);

WallTime FromProto(const google::protobuf::Timestamp& time);
google::protobuf::Timestamp ToProto(WallTime time);

}  // namespace lockstep::pubsub::grpc_client
