// Compares two descriptor sets of google.pubsub.v1, field by field and in both directions: what is
// declared here must be what Google declares, and all of it.
// usage: node compare_protos.js OURS.pb OFFICIAL.pb
'use strict';
const fs = require('fs');
const {FileDescriptorSet} = require('protobufjs/ext/descriptor');

const PACKAGE = 'google.pubsub.v1';

// One line per message, field, enum value and method, so that a difference reads like a diff.
function describe(file) {
  const lines = new Set();
  const enumeration = (type, scope) => {
    for (const value of type.value) lines.add(`enum ${scope}.${type.name}.${value.name} = ${value.number}`);
  };
  const message = (type, scope) => {
    const name = `${scope}.${type.name}`;
    lines.add(`message ${name}`);
    for (const field of type.field) {
      const inOneof = Object.prototype.hasOwnProperty.call(field, 'oneofIndex');
      const oneof = inOneof ? ` in ${type.oneofDecl[field.oneofIndex].name}` : '';
      lines.add(`field ${name}.${field.name} = ${field.number}: label ${field.label}, ` +
                `type ${field.type} ${field.typeName || ''}${oneof}`);
    }
    type.enumType.forEach((nested) => enumeration(nested, name));
    type.nestedType.forEach((nested) => message(nested, name));
  };
  for (const proto of FileDescriptorSet.decode(fs.readFileSync(file)).file) {
    if (proto.package !== PACKAGE) continue;
    proto.messageType.forEach((type) => message(type, PACKAGE));
    proto.enumType.forEach((type) => enumeration(type, PACKAGE));
    for (const service of proto.service) {
      for (const method of service.method) {
        const stream = (streams) => (streams ? 'stream ' : '');
        lines.add(`rpc ${service.name}.${method.name}(${stream(method.clientStreaming)}${method.inputType})` +
                  ` returns (${stream(method.serverStreaming)}${method.outputType})`);
      }
    }
  }
  return lines;
}

const ours = describe(process.argv[2]);
const official = describe(process.argv[3]);
let differences = 0;
const missing = (from, to, what) => {
  for (const line of from) {
    if (to.has(line)) continue;
    console.error(`${what}: ${line}`);
    differences++;
  }
};
missing(official, ours, 'official, not ours');
missing(ours, official, 'ours, not official');
const {version} = require('@google-cloud/pubsub/package.json');
console.log(`google.pubsub.v1: ${ours.size} declarations of ours, ${official.size} in ` +
            `@google-cloud/pubsub ${version}, ${differences} differences`);
process.exit(differences === 0 && ours.size > 100 ? 0 : 1);
