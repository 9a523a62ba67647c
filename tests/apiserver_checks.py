#!/usr/bin/env python3
"""The conformance checklist of docs/behaviour/api.md (API-12) as a program; the number of a check is its id there.
`cargo xtask conformance api` runs it against `orlop api`.
Each check is ONE call. Stateful: run in order against an empty server, namespace `conf`.
env: BASE=https://127.0.0.1:26443 (or plain http) CA= CERT= KEY=
usage: apiserver_checks.py run | kubectl | md   (kubectl: after run; md: the list of docs/behaviour/api.md)
"""
import json, os, ssl, sys, http.client, urllib.parse, re
BASE = os.environ.get('BASE', 'https://127.0.0.1:26443')
PK = os.environ.get('PKI', './')
u = urllib.parse.urlparse(BASE)
def conn(anon=False):
    if u.scheme == 'http': return http.client.HTTPConnection(u.netloc, timeout=20)
    c = ssl.create_default_context(cafile=os.environ.get('CA', PK + 'ca.crt')); c.check_hostname = False
    if not anon: c.load_cert_chain(os.environ.get('CERT', PK + 'admin.crt'), os.environ.get('KEY', PK + 'admin.key'))
    return http.client.HTTPSConnection(u.netloc, context=c, timeout=20)
class R: pass
def call(m, path, body=None, ct='application/json', acc='application/json', hdr=None, anon=False):
    c = conn(anon); h = {'User-Agent': 'conf/1'}
    if acc: h['Accept'] = acc
    if body is not None:
        h['Content-Type'] = ct
        if not isinstance(body, (str, bytes)): body = json.dumps(body)
    h.update(hdr or {})
    c.request(m, path, body, h); r = c.getresponse(); o = R()
    o.code = r.status; o.h = {k.lower(): v for k, v in r.getheaders()}; o.warn = [v for k, v in r.getheaders() if k.lower() == 'warning']
    o.raw = r.read(); o.t = o.raw.decode('utf8', 'replace')
    try: o.j = json.loads(o.t)
    except Exception: o.j = None
    o.ev = []
    if 'watch=' in path or '/watch/' in path:
        for l in o.t.splitlines():
            try: o.ev.append(json.loads(l))
            except Exception: pass
    c.close(); return o
MP = 'application/merge-patch+json'; JP = 'application/json-patch+json'; SP = 'application/strategic-merge-patch+json'; AP = 'application/apply-patch+yaml'
TAB = 'application/json;as=Table;v=v1;g=meta.k8s.io'
AGG = 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'
PB = 'application/vnd.kubernetes.protobuf'
N = '/api/v1/namespaces/conf'; ST = '/apis/storage.k8s.io/v1'; PVS = '/api/v1/persistentvolumes'
def pvc(name, **kw):
    s = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}; s.update(kw)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": s}
def pv(name, **kw):
    s = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.io", "volumeHandle": "h"}}; s.update(kw)
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": s}
def cm(name, **md):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(name=name, **md)}
def apply(name, data, **md): return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": dict(name=name, **md), "data": data}
def sto(kind, name, **kw): return dict({"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}}, **kw)
V = {}
CH = []
def ck(sec, m, path, exp, code, pred=None, **kw): CH.append((sec, m, path, exp, code, pred, kw))
def st(reason, sub): return lambda r: r.j and r.j.get('kind') == 'Status' and r.j.get('reason', '') == reason and sub in r.j['message']
def dig(o, p):
    for k in p.split('.'):
        if o is None: return None
        o = o[int(k)] if isinstance(o, list) else o.get(k)
    return o
def eq(p, v): return lambda r: dig(r.j, p) == v
def al(*f): return lambda r: all(x(r) for x in f)
def cells(*v): return lambda r: [c for c, d in zip(r.j['rows'][0]['cells'], V['cols'] if r.j['columnDefinitions'] is None else [x['name'] for x in r.j['columnDefinitions']]) if d not in ('Age',)] == list(v)
def cols(*v): return lambda r: [c['name'] for c in r.j['columnDefinitions']] == list(v)

S = 'Health, discovery, OpenAPI'
for p in ('/livez', '/readyz', '/healthz'): ck(S, 'GET', p, 'body `ok`, text/plain', 200, lambda r: r.t == 'ok' and r.h['content-type'].startswith('text/plain'))
ck(S, 'GET', '/readyz?verbose', 'lines `[+]name ok`, last line `readyz check passed`', 200, lambda r: '[+]' in r.t and r.t.strip().endswith('readyz check passed'))
ck(S, 'GET', '/version', 'object with string `major`,`minor`,`gitVersion`,`platform`', 200, lambda r: r.j['major'] == '1' and r.j['gitVersion'].startswith('v1.'))
ck(S, 'GET', '/api', 'kind APIVersions, versions ["v1"], no apiVersion key', 200, lambda r: r.j['kind'] == 'APIVersions' and r.j['versions'] == ['v1'] and 'apiVersion' not in r.j)
ck(S, 'GET', '/api/v1', 'APIResourceList, groupVersion "v1", persistentvolumeclaims shortNames ["pvc"], also a row persistentvolumeclaims/status', 200, lambda r: any(x['name'] == 'persistentvolumeclaims' and x['shortNames'] == ['pvc'] for x in r.j['resources']) and any(x['name'] == 'persistentvolumeclaims/status' for x in r.j['resources']))
ck(S, 'GET', '/apis', 'APIGroupList containing storage.k8s.io with preferredVersion storage.k8s.io/v1', 200, lambda r: any(g['name'] == 'storage.k8s.io' and g['preferredVersion']['groupVersion'] == 'storage.k8s.io/v1' for g in r.j['groups']))
ck(S, 'GET', '/apis/storage.k8s.io', 'single APIGroup object', 200, eq('kind', 'APIGroup'))
ck(S, 'GET', '/apis/storage.k8s.io/v1', 'resources include storageclasses, volumeattachments(/status), csidrivers, csinodes, csistoragecapacities, volumeattributesclasses', 200, lambda r: {'storageclasses', 'volumeattachments', 'volumeattachments/status', 'csidrivers', 'csinodes', 'csistoragecapacities', 'volumeattributesclasses'} <= {x['name'] for x in r.j['resources']})
ck(S, 'GET', '/api', 'aggregated: kind APIGroupDiscoveryList, one item with empty metadata, Content-Type repeats the `as=` parameters, ETag present', 200, lambda r: r.j['kind'] == 'APIGroupDiscoveryList' and r.j['items'][0]['metadata'] == {} and 'as=APIGroupDiscoveryList' in r.h['content-type'] and 'etag' in r.h, acc=AGG)
ck(S, 'GET', '/apis', 'aggregated: storage.k8s.io version entry has freshness "Current" and subresources nested under volumeattachments', 200, lambda r: [v['freshness'] for g in r.j['items'] if g['metadata']['name'] == 'storage.k8s.io' for v in g['versions']] == ['Current'], acc=AGG)
ck(S, 'GET', '/apis', 'aggregated, with If-None-Match = the ETag: empty body', 304, None, acc=AGG, hdr=lambda: {'If-None-Match': call('GET', '/apis', acc=AGG).h['etag']})
ck(S, 'GET', '/apis/zz.example/v1', 'unknown group: plain text `404 page not found`, not a Status', 404, lambda r: r.t.startswith('404 page not found'))
ck(S, 'GET', '/apis/storage.k8s.io/v9/x', 'known group, unknown version: Status NotFound `the server could not find the requested resource`', 404, st('NotFound', 'the server could not find the requested resource'))
ck(S, 'GET', '/openapi/v3', 'JSON object `paths`, key "api/v1" with serverRelativeURL /openapi/v3/api/v1?hash=...', 200, lambda r: r.j['paths']['api/v1']['serverRelativeURL'].startswith('/openapi/v3/api/v1?hash='))
ck(S, 'GET', '/openapi/v3/api/v1', 'some path has a PATCH operation tagged x-kubernetes-group-version-kind PersistentVolumeClaim with query parameter fieldValidation', 200, lambda r: any(x.get('patch', {}).get('x-kubernetes-group-version-kind', {}).get('kind') == 'PersistentVolumeClaim' and any(p.get('name') == 'fieldValidation' for p in x['patch']['parameters']) for x in r.j['paths'].values()))

S = 'Create, defaults, metadata'
ck(S, 'POST', '/api/v1/namespaces', 'label kubernetes.io/metadata.name=conf, spec.finalizers ["kubernetes"], status.phase Active', 201, al(eq('spec.finalizers', ['kubernetes']), eq('status.phase', 'Active'), lambda r: r.j['metadata']['labels'] == {'kubernetes.io/metadata.name': 'conf'}), body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conf"}})
ck(S, 'POST', N + '/persistentvolumeclaims', 'c1: volumeMode Filesystem, finalizers ["kubernetes.io/pvc-protection"], status exactly {"phase":"Pending"}', 201, al(eq('spec.volumeMode', 'Filesystem'), eq('metadata.finalizers', ['kubernetes.io/pvc-protection']), eq('status', {'phase': 'Pending'})), body=pvc('c1', storageClassName='sc0'))
ck(S, 'GET', N + '/persistentvolumeclaims/c1', 'has uid, resourceVersion (decimal string), creationTimestamp Z; no selfLink, no generation', 200, lambda r: r.j['metadata']['resourceVersion'].isdigit() and 'selfLink' not in r.j['metadata'] and 'generation' not in r.j['metadata'] and r.j['metadata']['creationTimestamp'].endswith('Z'))
ck(S, 'POST', N + '/persistentvolumeclaims', 'same name again: AlreadyExists `persistentvolumeclaims "c1" already exists`', 409, al(st('AlreadyExists', 'persistentvolumeclaims "c1" already exists'), eq('details.kind', 'persistentvolumeclaims')), body=pvc('c1'))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'not stored; body has uid and creationTimestamp but no resourceVersion', 201, lambda r: 'uid' in r.j['metadata'] and 'resourceVersion' not in r.j['metadata'], body=pvc('dry'))
ck(S, 'GET', N + '/persistentvolumeclaims/dry', 'dry-run left nothing', 404, st('NotFound', 'persistentvolumeclaims "dry" not found'))
ck(S, 'POST', N + '/configmaps', 'generateName: name = prefix + 5 chars of bcdfghjklmnpqrstvwxz2456789', 201, lambda r: re.fullmatch('g-[bcdfghjklmnpqrstvwxz2456789]{5}', r.j['metadata']['name']), body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}})
ck(S, 'POST', N + '/configmaps?dryRun=All', 'client-set uid, creationTimestamp, deletionTimestamp, deletionGracePeriodSeconds, selfLink are discarded; client-set generation 7 is KEPT', 201, lambda r: r.j['metadata']['generation'] == 7 and r.j['metadata']['uid'] != 'u' and 'deletionTimestamp' not in r.j['metadata'] and 'selfLink' not in r.j['metadata'], body=cm('sys', uid='u', generation=7, selfLink='/x', creationTimestamp='2020-01-01T00:00:00Z', deletionTimestamp='2020-01-01T00:00:00Z', deletionGracePeriodSeconds=3))
ck(S, 'POST', N + '/configmaps', 'resourceVersion on create: `resourceVersion should not be set on objects to be created`, no reason', 500, lambda r: r.j['message'] == 'resourceVersion should not be set on objects to be created' and 'reason' not in r.j, body=cm('rv', resourceVersion='5'))
ck(S, 'POST', N + '/persistentvolumeclaims', 'object namespace differs from URL: BadRequest', 400, st('BadRequest', 'the namespace of the provided object does not match the namespace sent on the request'), body=dict(pvc('x'), metadata={"name": "x", "namespace": "other"}))
ck(S, 'POST', '/api/v1/namespaces/nope/persistentvolumeclaims', 'namespace missing: NotFound `namespaces "nope" not found`, details.kind namespaces', 404, al(st('NotFound', 'namespaces "nope" not found'), eq('details.kind', 'namespaces')), body=pvc('x'))
ck(S, 'POST', N + '/persistentvolumeclaims', 'kind Secret posted to PVC endpoint: BadRequest `Secret in version "v1" cannot be handled as a PersistentVolumeClaim...`', 400, st('BadRequest', 'Secret in version "v1" cannot be handled as a PersistentVolumeClaim'), body={"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'kind/apiVersion omitted entirely: accepted (built-in kinds)', 201, None, body={k: v for k, v in pvc('nk').items() if k not in ('kind', 'apiVersion')})
ck(S, 'POST', N + '/persistentvolumeclaims', 'quantity "1Zi": BadRequest mentioning the quantity regular expression', 400, st('BadRequest', 'quantities must match the regular expression'), body=pvc('x', resources={"requests": {"storage": "1Zi"}}))
ck(S, 'POST', PVS + '?dryRun=All', 'quantity canonical form: 1024Mi comes back as 1Gi', 201, eq('spec.capacity.storage', '1Gi'), body=pv('conf-q', capacity={"storage": "1024Mi"}))
ck(S, 'POST', PVS + '?dryRun=All', 'quantity 1.5Gi comes back as 1536Mi', 201, eq('spec.capacity.storage', '1536Mi'), body=pv('conf-q', capacity={"storage": "1.5Gi"}))
ck(S, 'POST', N + '/configmaps', 'invalid name: 422 Invalid, details.causes[0] = {reason FieldValueInvalid, field metadata.name}', 422, lambda r: r.j['reason'] == 'Invalid' and r.j['details']['causes'][0]['field'] == 'metadata.name' and r.j['details']['causes'][0]['reason'] == 'FieldValueInvalid', body=cm('A_b'))
ck(S, 'POST', N + '/configmaps?dryRun=All', 'finalizer "foo" (unqualified): 422 `name is neither a standard finalizer name nor is it fully qualified`', 422, st('Invalid', 'name is neither a standard finalizer name nor is it fully qualified'), body=cm('f', finalizers=['foo']))
ck(S, 'POST', N + '/configmaps?dryRun=All', 'two identical ownerReferences: accepted, deduplicated to one, Warning header about duplicate entries', 201, lambda r: len(r.j['metadata']['ownerReferences']) == 1 and 'duplicate entries' in r.warn[0], body=cm('o', ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}] * 2))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'unknown field, default fieldValidation: accepted, Warning: 299 - "unknown field \\"spec.foo\\""', 201, lambda r: r.warn == ['299 - "unknown field \\"spec.foo\\""'], body=pvc('w', foo=1))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All&fieldValidation=Ignore', 'unknown field with Ignore: accepted, no Warning', 201, lambda r: r.warn == [], body=pvc('w', foo=1))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All&fieldValidation=Strict', 'unknown field with Strict: BadRequest `strict decoding error: unknown field "spec.foo"`', 400, st('BadRequest', 'strict decoding error: unknown field "spec.foo"'), body=pvc('w', foo=1))
ck(S, 'POST', N + '/persistentvolumeclaims?fieldValidation=Foo', 'CreateOptions.meta.k8s.io "" is invalid', 422, st('Invalid', 'CreateOptions.meta.k8s.io "" is invalid'), body=pvc('w'))
ck(S, 'POST', N + '/persistentvolumeclaims', 'Content-Type application/x-www-form-urlencoded: UnsupportedMediaType', 415, st('UnsupportedMediaType', 'the body of the request was in an unknown format'), body='{}', ct='application/x-www-form-urlencoded')
ck(S, 'GET', N + '/persistentvolumeclaims/c1', 'Accept application/xml only: NotAcceptable', 406, st('NotAcceptable', '406: Not Acceptable'), acc='application/xml')
ck(S, 'GET', N + '/persistentvolumeclaims/c1', 'Accept protobuf only: body starts with bytes 6b 38 73 00', 200, lambda r: r.raw[:4] == b'k8s\0', acc=PB)
ck(S, 'GET', N + '/persistentvolumeclaims/c1', 'Accept protobuf,json: either encoding is legal, Content-Type must say which', 200, lambda r: r.h['content-type'] in (PB, 'application/json'), acc=PB + ',application/json')
ck(S, 'POST', N + '/persistentvolumeclaims/c1', 'POST on a named object: MethodNotAllowed', 405, st('MethodNotAllowed', 'the server does not allow this method on the requested resource'), body=pvc('c1'))
ck(S, 'POST', '/api/v1/persistentvolumeclaims', 'namespaced create without a namespace: MethodNotAllowed', 405, None, body=pvc('x'))
ck(S, 'GET', N + '/persistentvolumeclaims/c1/scale', 'unknown subresource: NotFound', 404, st('NotFound', 'the server could not find the requested resource'))

S = 'Update and concurrency'
ck(S, 'PUT', N + '/persistentvolumeclaims/c1', 'stale resourceVersion "1": Conflict `Operation cannot be fulfilled on persistentvolumeclaims "c1": the object has been modified; please apply your changes to the latest version and try again`', 409, st('Conflict', 'Operation cannot be fulfilled on persistentvolumeclaims "c1": the object has been modified; please apply your changes to the latest version and try again'), body=dict(pvc('c1', storageClassName='sc0'), metadata={"name": "c1", "resourceVersion": "1"}))
ck(S, 'PUT', N + '/persistentvolumeclaims/c1?dryRun=All', 'no resourceVersion: allowed for PVC (unconditional)', 200, None, body=dict(pvc('c1', storageClassName='sc0')))
ck(S, 'PUT', N + '/persistentvolumeclaims/c1', 'wrong uid in body: Conflict mentioning `Precondition failed: UID in precondition`', 409, st('Conflict', 'Precondition failed: UID in precondition'), body=dict(pvc('c1', storageClassName='sc0'), metadata={"name": "c1", "uid": "abc"}))
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'wrong uid in a merge patch: 422 `metadata.uid: Invalid value: "zz": field is immutable`', 422, st('Invalid', 'metadata.uid: Invalid value: "zz": field is immutable'), body={"metadata": {"uid": "zz"}}, ct=MP)
ck(S, 'PUT', N + '/persistentvolumeclaims/c1', 'name in body differs from URL: BadRequest `the name of the object (zz) does not match the name on the URL (c1)`', 400, st('BadRequest', 'the name of the object (zz) does not match the name on the URL (c1)'), body=pvc('zz'))
ck(S, 'PUT', N + '/persistentvolumeclaims/none', 'PUT to a missing PVC: NotFound (no create-on-update)', 404, None, body=pvc('none'))
ck(S, 'PUT', '/apis/coordination.k8s.io/v1/namespaces/conf/leases/l1', 'PUT to a missing Lease creates it', 201, eq('kind', 'Lease'), body={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l1"}, "spec": {"holderIdentity": "a"}})
ck(S, 'PUT', '/apis/coordination.k8s.io/v1/namespaces/conf/leases/l1', 'existing Lease without resourceVersion: 422 `metadata.resourceVersion: Invalid value: 0: must be specified for an update`', 422, st('Invalid', 'metadata.resourceVersion: Invalid value: 0: must be specified for an update'), body={"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l1"}, "spec": {}})
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'merge patch adds label a=1; resourceVersion grows', 200, eq('metadata.labels.a', '1'), body={"metadata": {"labels": {"a": "1"}}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'same patch again: resourceVersion unchanged, no watch event', 200, lambda r: r.j['metadata']['resourceVersion'] == V['rv'], body={"metadata": {"labels": {"a": "1"}}}, ct=MP, pre=lambda: V.update(rv=call('GET', N + '/persistentvolumeclaims/c1').j['metadata']['resourceVersion']))
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'null removes the label', 200, lambda r: 'labels' not in r.j['metadata'], body={"metadata": {"labels": {"a": None}}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'merge patch with stale metadata.resourceVersion: Conflict', 409, st('Conflict', 'the object has been modified'), body={"metadata": {"resourceVersion": "1"}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'JSON patch whose `test` op fails: 422, reason Invalid, generic message `the server rejected our request due to an error in our request`', 422, lambda r: r.j['message'] == 'the server rejected our request due to an error in our request' and r.j['reason'] == 'Invalid', body=[{"op": "test", "path": "/metadata/name", "value": "q"}], ct=JP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'JSON patch remove of a missing path: same 422', 422, None, body=[{"op": "remove", "path": "/metadata/labels/none"}], ct=JP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'strategic patch merges finalizers (set): both present afterwards', 200, lambda r: set(r.j['metadata']['finalizers']) == {'kubernetes.io/pvc-protection', 'x.io/y'}, body={"metadata": {"finalizers": ["x.io/y"]}}, ct=SP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', '$deleteFromPrimitiveList removes one finalizer', 200, eq('metadata.finalizers', ['kubernetes.io/pvc-protection']), body={"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/y"]}}, ct=SP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'Content-Type application/json on PATCH: UnsupportedMediaType', 415, st('UnsupportedMediaType', ''), body={}, ct='application/json')
ck(S, 'PATCH', N + '/persistentvolumeclaims/none', 'merge patch on missing object: NotFound', 404, None, body={}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1/status', 'status patch by strategic merge: condition keyed by type', 200, lambda r: r.j['status']['conditions'][0]['type'] == 'Resizing', body={"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}, ct=SP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1', 'status sent to the main resource is ignored', 200, eq('status.phase', 'Pending'), body={"status": {"phase": "Bound"}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1/status?dryRun=All', 'spec sent to /status is ignored, metadata labels are NOT ignored (PVC and PV)', 200, lambda r: 'volumeName' not in r.j['spec'] and r.j['metadata']['labels'] == {'viastatus': '1'}, body={"metadata": {"labels": {"viastatus": "1"}}, "spec": {"volumeName": "x"}}, ct=MP)

S = 'Server-side apply'
ck(S, 'PATCH', N + '/configmaps/s1', 'apply without fieldManager: 422 `fieldManager: Required value: is required for apply patch`', 422, st('Invalid', 'fieldManager: Required value: is required for apply patch'), body=apply('s1', {"a": "1"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m1', 'apply creates; managedFields[0] = {manager m1, operation Apply, fieldsV1 {"f:data":{"f:a":{},"f:b":{}}}}', 201, lambda r: r.j['metadata']['managedFields'][0]['operation'] == 'Apply' and r.j['metadata']['managedFields'][0]['fieldsV1'] == {"f:data": {"f:a": {}, "f:b": {}}}, body=apply('s1', {"a": "1", "b": "1"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m2', 'different value: Conflict `Apply failed with 1 conflict: conflict with "m1": .data.a`, cause reason FieldManagerConflict field .data.a', 409, al(st('Conflict', 'Apply failed with 1 conflict: conflict with "m1": .data.a'), lambda r: r.j['details']['causes'][0] == {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": ".data.a"}), body=apply('s1', {"a": "2"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m2&force=true', 'force: value 2, m1 keeps only b', 200, lambda r: r.j['data'] == {"a": "2", "b": "1"} and {m['manager']: m['fieldsV1'] for m in r.j['metadata']['managedFields']}['m1'] == {"f:data": {"f:b": {}}}, body=apply('s1', {"a": "2"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m1', 'm1 omits b: b removed from the object', 200, eq('data', {"a": "2", "c": "1"}), body=apply('s1', {"c": "1"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=upd', 'merge patch by another manager takes ownership of a (operation Update)', 200, lambda r: any(m['manager'] == 'upd' and m['operation'] == 'Update' for m in r.j['metadata']['managedFields']), body={"data": {"a": "9"}}, ct=MP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m2', 'conflict with an Update manager names the version: `conflict with "upd" using v1: .data.a`', 409, st('Conflict', 'conflict with "upd" using v1: .data.a'), body=apply('s1', {"a": "2"}), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m2', 'managedFields in an apply body: BadRequest `metadata.managedFields must be nil`', 400, st('BadRequest', 'metadata.managedFields must be nil'), body=apply('s1', {}, managedFields=[{"manager": "x", "operation": "Apply", "apiVersion": "v1"}]), ct=AP)
ck(S, 'PATCH', N + '/configmaps/s1?force=true', 'force on a merge patch: 422 `force: Forbidden: may not be specified for non-apply patch`', 422, st('Invalid', 'force: Forbidden: may not be specified for non-apply patch'), body={}, ct=MP)
ck(S, 'PATCH', N + '/configmaps/s1', 'managedFields set to [{}] clears the list', 200, lambda r: 'managedFields' not in r.j['metadata'], body={"metadata": {"managedFields": [{}]}}, ct=MP)
ck(S, 'PATCH', N + '/configmaps/s1?fieldManager=m1', 'apply onto an object without managedFields: conflict with "before-first-apply" using v1', 409, st('Conflict', 'conflict with "before-first-apply" using v1: .data.a'), body=apply('s1', {"a": "1"}), ct=AP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c1?fieldManager=m', 'apply of an undeclared field: 500 `...field not declared in schema`, whatever fieldValidation says', 500, lambda r: '.spec.foo: field not declared in schema' in r.j['message'], body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c1"}, "spec": {"foo": 1}}, ct=AP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/none/status?fieldManager=m', 'apply on /status never creates: NotFound', 404, None, body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "none"}, "status": {}}, ct=AP)

S = 'List and watch'
ck(S, 'POST', N + '/persistentvolumeclaims', 'second claim c2 (fixture)', 201, None, body=pvc('c2', storageClassName='sc0'))
ck(S, 'GET', N + '/persistentvolumeclaims', 'kind PersistentVolumeClaimList; items ordered by name and WITHOUT kind/apiVersion; list resourceVersion present', 200, lambda r: [i['metadata']['name'] for i in r.j['items']] == ['c1', 'c2'] and 'kind' not in r.j['items'][0] and r.j['metadata']['resourceVersion'])
ck(S, 'GET', '/api/v1/namespaces/nope/persistentvolumeclaims', 'list in a namespace that does not exist: 200 with items []', 200, lambda r: r.j['items'] == [])
ck(S, 'GET', N + '/persistentvolumeclaims?limit=1', 'one item, metadata.continue set, remainingItemCount 1', 200, lambda r: len(r.j['items']) == 1 and r.j['metadata']['remainingItemCount'] == 1 and V.update(cont=r.j['metadata']['continue']) is None)
ck(S, 'GET', lambda: N + '/persistentvolumeclaims?limit=1&continue=' + V['cont'], 'second page: c2, no continue, same list resourceVersion as page one', 200, lambda r: r.j['items'][0]['metadata']['name'] == 'c2' and 'continue' not in r.j['metadata'])
ck(S, 'GET', N + '/persistentvolumeclaims?limit=1&continue=abc', 'garbage token: BadRequest `invalid continue token`', 400, st('BadRequest', 'invalid continue token'))
ck(S, 'GET', lambda: N + '/persistentvolumeclaims?resourceVersion=5&limit=1&continue=' + V['cont'], 'continue with a non-zero resourceVersion: BadRequest', 400, st('BadRequest', 'specifying resource version is not allowed when using continue'))
ck(S, 'GET', N + '/persistentvolumeclaims?resourceVersion=0&resourceVersionMatch=Exact', '422 `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`', 422, st('Invalid', 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
ck(S, 'GET', N + '/persistentvolumeclaims?resourceVersion=99999999', 'future version: 504 Timeout, cause ResourceVersionTooLarge, retryAfterSeconds 1 (reference takes 3 s)', 504, lambda r: r.j['reason'] == 'Timeout' and r.j['details']['causes'][0]['reason'] == 'ResourceVersionTooLarge' and r.j['details']['retryAfterSeconds'] == 1)
ck(S, 'GET', N + '/persistentvolumeclaims?resourceVersion=abc', 'BadRequest `invalid resource version`', 400, st('BadRequest', 'invalid resource version'))
ck(S, 'GET', N + '/persistentvolumeclaims?fieldSelector=metadata.name%3Dc2', 'only c2', 200, lambda r: len(r.j['items']) == 1)
ck(S, 'GET', N + '/persistentvolumeclaims?fieldSelector=spec.volumeName%3Dx', 'BadRequest `"spec.volumeName" is not a known field selector: only "metadata.name", "metadata.namespace"`', 400, st('BadRequest', '"spec.volumeName" is not a known field selector: only "metadata.name", "metadata.namespace"'))
ck(S, 'GET', N + '/persistentvolumeclaims?labelSelector=a%20in%20(b', 'BadRequest `unable to parse requirement`', 400, st('BadRequest', 'unable to parse requirement'))
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&timeoutSeconds=1', 'no resourceVersion: synthetic ADDED c1, c2 then nothing; stream ends after 1 s', 200, lambda r: [e['type'] for e in r.ev] == ['ADDED', 'ADDED'])
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&timeoutSeconds=1&resourceVersion=0&allowWatchBookmarks=true', 'ADDED c1, c2 and a BOOKMARK annotated k8s.io/initial-events-end=true even though sendInitialEvents was not sent', 200, lambda r: [e['type'] for e in r.ev][:3] == ['ADDED', 'ADDED', 'BOOKMARK'] and r.ev[2]['object']['metadata']['annotations'] == {'k8s.io/initial-events-end': 'true'})
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan', 'WatchList: ADDED*, then BOOKMARK with kind PersistentVolumeClaim, resourceVersion and the annotation', 200, lambda r: r.ev[-1]['type'] == 'BOOKMARK' and r.ev[2]['object']['kind'] == 'PersistentVolumeClaim' and r.ev[2]['object']['metadata']['annotations']['k8s.io/initial-events-end'] == 'true')
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&sendInitialEvents=true', '422 `sendInitialEvents requires setting resourceVersionMatch to NotOlderThan`', 422, st('Invalid', 'sendInitialEvents requires setting resourceVersionMatch to NotOlderThan'))
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan', '422 `resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided`', 422, st('Invalid', 'resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided'))
ck(S, 'GET', N + '/persistentvolumeclaims?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1', 'on a list: 422 `sendInitialEvents is forbidden for list`', 422, st('Invalid', 'sendInitialEvents is forbidden for list'))
ck(S, 'GET', lambda: N + '/persistentvolumeclaims?watch=1&timeoutSeconds=1&resourceVersion=' + call('GET', N + '/persistentvolumeclaims').j['metadata']['resourceVersion'], 'watch from the list version: no events', 200, lambda r: r.ev == [])
ck(S, 'GET', N + '/persistentvolumeclaims?watch=1&timeoutSeconds=1', 'Table watch: first event has columnDefinitions, the second has columnDefinitions null', 200, lambda r: r.ev[0]['object']['columnDefinitions'] and r.ev[1]['object']['columnDefinitions'] is None and r.ev[1]['object']['kind'] == 'Table', acc=TAB)
ck(S, 'GET', N + '/persistentvolumeclaims', 'PartialObjectMetadataList: items carry kind PartialObjectMetadata', 200, lambda r: r.j['kind'] == 'PartialObjectMetadataList' and r.j['items'][0]['kind'] == 'PartialObjectMetadata' and 'spec' not in r.j['items'][0], acc='application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io')
ck(S, 'GET', N + '/persistentvolumeclaims', 'PartialObjectMetadata asked of a list: 406 NotAcceptable', 406, st('NotAcceptable', 'you requested PartialObjectMetadata, but the requested object is a list'), acc='application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io')
ck(S, 'GET', N + '/persistentvolumeclaims/c1?watch=true', 'watch parameter on a named GET is ignored: plain object', 200, eq('kind', 'PersistentVolumeClaim'))

S = 'Tables'
ck(S, 'GET', N + '/persistentvolumeclaims/c2', 'columns Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode(priority 1)', 200, cols('Name', 'Status', 'Volume', 'Capacity', 'Access Modes', 'StorageClass', 'VolumeAttributesClass', 'Age', 'VolumeMode'), acc=TAB)
ck(S, 'GET', N + '/persistentvolumeclaims/c2', 'unbound claim cells: c2,Pending,"","","",sc0,<unset>,(age),Filesystem; row object is PartialObjectMetadata', 200, al(cells('c2', 'Pending', '', '', '', 'sc0', '<unset>', 'Filesystem'), lambda r: r.j['rows'][0]['object']['kind'] == 'PartialObjectMetadata'), acc=TAB)
ck(S, 'GET', N + '/persistentvolumeclaims/c2?includeObject=None', 'rows[0].object is null', 200, lambda r: r.j['rows'][0]['object'] is None, acc=TAB)
ck(S, 'GET', N + '/persistentvolumeclaims/c2?includeObject=Object', 'rows[0].object is the full claim', 200, lambda r: r.j['rows'][0]['object']['kind'] == 'PersistentVolumeClaim', acc=TAB)
ck(S, 'GET', N + '/persistentvolumeclaims/c2?includeObject=zzz', '400 `Unable to convert to Table as requested`', 400, st('BadRequest', 'Unable to convert to Table as requested'), acc=TAB)

S = 'PersistentVolume'
ck(S, 'POST', PVS, 'defaults: reclaim Retain, volumeMode Filesystem, finalizer kubernetes.io/pv-protection, status.phase Pending with lastPhaseTransitionTime', 201, al(eq('spec.persistentVolumeReclaimPolicy', 'Retain'), eq('spec.volumeMode', 'Filesystem'), eq('metadata.finalizers', ['kubernetes.io/pv-protection']), lambda r: r.j['status']['phase'] == 'Pending' and 'lastPhaseTransitionTime' in r.j['status']), body=pv('conf-pv1', accessModes=['ReadWriteMany', 'ReadWriteOnce', 'ReadOnlyMany'], storageClassName='sc0', claimRef={"namespace": "conf", "name": "c1"}))
ck(S, 'GET', PVS + '/conf-pv1', 'Table cells: 1Gi, RWO,ROX,RWX (fixed order), Retain, Pending, conf/c1, sc0, <unset>, "", Filesystem', 200, cells('conf-pv1', '1Gi', 'RWO,ROX,RWX', 'Retain', 'Pending', 'conf/c1', 'sc0', '<unset>', '', 'Filesystem'), acc=TAB)
ck(S, 'POST', PVS, 'two sources: 422 `spec.csi: Forbidden: may not specify more than 1 volume type`', 422, st('Invalid', 'spec.csi: Forbidden: may not specify more than 1 volume type'), body=pv('conf-x', hostPath={"path": "/x"}))
ck(S, 'POST', PVS, 'RWOP mixed: 422 `may not use ReadWriteOncePod with other access modes`', 422, st('Invalid', 'may not use ReadWriteOncePod with other access modes'), body=pv('conf-x', accessModes=['ReadWriteOnce', 'ReadWriteOncePod']))
ck(S, 'POST', PVS, 'capacity with a second resource: 422 `spec.capacity: Unsupported value`', 422, st('Invalid', 'spec.capacity: Unsupported value'), body=pv('conf-x', capacity={"storage": "1Gi", "cpu": "1"}))
ck(S, 'POST', PVS, 'local without nodeAffinity: 422 `Local volume requires node affinity`', 422, st('Invalid', 'Local volume requires node affinity'), body={"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "conf-x"}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "local": {"path": "/x"}}})
ck(S, 'PATCH', PVS + '/conf-pv1', 'change volumeHandle: 422 `spec.persistentvolumesource is immutable after creation`', 422, st('Invalid', 'spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation'), body={"spec": {"csi": {"volumeHandle": "h2"}}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1?dryRun=All', 'set csi.controllerExpandSecretRef when absent: allowed', 200, None, body={"spec": {"csi": {"controllerExpandSecretRef": {"name": "a", "namespace": "b"}}}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1', 'change volumeMode: 422 with path `volumeMode` (no spec. prefix)', 422, st('Invalid', 'is invalid: volumeMode: Invalid value: "Block": field is immutable'), body={"spec": {"volumeMode": "Block"}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1?dryRun=All', 'capacity, accessModes, storageClassName, reclaim policy, mountOptions, claimRef may all change', 200, None, body={"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany"], "storageClassName": "o", "persistentVolumeReclaimPolicy": "Delete", "mountOptions": ["ro"], "claimRef": None}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1', 'set nodeAffinity once: allowed', 200, None, body={"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1', 'change it: 422 `field is immutable, except for updating from beta label to GA`', 422, st('Invalid', 'field is immutable, except for updating from beta label to GA'), body={"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["c"]}]}]}}}}, ct=MP)
ck(S, 'PATCH', PVS + '/conf-pv1/status', 'phase change updates lastPhaseTransitionTime; the phase value itself is not validated', 200, eq('status.phase', 'Available'), body={"status": {"phase": "Available"}}, ct=MP)
ck(S, 'DELETE', PVS + '/conf-pv1', 'returns the PV with deletionTimestamp and deletionGracePeriodSeconds 0; Table STATUS becomes Terminating', 200, lambda r: r.j['kind'] == 'PersistentVolume' and r.j['metadata']['deletionGracePeriodSeconds'] == 0)
ck(S, 'GET', PVS + '/conf-pv1', 'STATUS cell Terminating', 200, lambda r: 'Terminating' in r.j['rows'][0]['cells'], acc=TAB)

S = 'StorageClass and PVC rules'
ck(S, 'POST', ST + '/storageclasses', 'defaults reclaimPolicy Delete, volumeBindingMode Immediate; allowVolumeExpansion stays absent', 201, al(eq('reclaimPolicy', 'Delete'), eq('volumeBindingMode', 'Immediate'), lambda r: 'allowVolumeExpansion' not in r.j), body=dict(sto('StorageClass', 'conf-sc', provisioner='d.io'), metadata={"name": "conf-sc", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}))
ck(S, 'GET', ST + '/storageclasses/conf-sc', 'Table: name cell "conf-sc (default)", expansion cell false', 200, cells('conf-sc (default)', 'd.io', 'Delete', 'Immediate', False), acc=TAB)
ck(S, 'PATCH', ST + '/storageclasses/conf-sc', 'provisioner, parameters, reclaimPolicy, volumeBindingMode immutable: four causes', 422, lambda r: len(r.j['details']['causes']) == 4, body={"provisioner": "q", "parameters": {"a": "b"}, "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"}, ct=MP)
ck(S, 'POST', ST + '/storageclasses', 'reclaimPolicy Recycle: 422 supported values: "Delete", "Retain"', 422, st('Invalid', 'supported values: "Delete", "Retain"'), body=sto('StorageClass', 'conf-x', provisioner='d', reclaimPolicy='Recycle'))
ck(S, 'POST', ST + '/storageclasses', 'an allowedTopologies term with no expressions: 422 Duplicate value (reference quirk)', 422, st('Invalid', 'Duplicate value'), body=sto('StorageClass', 'conf-x', provisioner='d', allowedTopologies=[{}]))
ck(S, 'POST', N + '/persistentvolumeclaims', 'claim without class: default class conf-sc is written into spec', 201, eq('spec.storageClassName', 'conf-sc'), body=pvc('c3'))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'storageClassName "" is kept', 201, eq('spec.storageClassName', ''), body=pvc('c4', storageClassName=''))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'dataSource of an unknown kind is silently dropped', 201, lambda r: 'dataSource' not in r.j['spec'], body=pvc('c4', dataSource={"apiGroup": "x.io", "kind": "Foo", "name": "n"}))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'dataSource VolumeSnapshot is mirrored into dataSourceRef', 201, lambda r: r.j['spec']['dataSourceRef']['kind'] == 'VolumeSnapshot', body=pvc('c4', dataSource={"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "n"}))
ck(S, 'POST', N + '/persistentvolumeclaims?dryRun=All', 'fractional bytes: accepted with Warning `fractional byte value "1500m" is invalid, must be an integer`', 201, lambda r: 'fractional byte value' in r.warn[0], body=pvc('c4', resources={"requests": {"storage": "1500m"}}))
ck(S, 'POST', N + '/persistentvolumeclaims', 'empty spec: 422 with exactly accessModes and resources[storage] causes', 422, lambda r: [c['field'] for c in r.j['details']['causes']] == ['spec.accessModes', 'spec.resources[storage]'], body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x"}, "spec": {}})
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'grow an unbound claim: 422 `spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims`', 422, st('Invalid', 'spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims'), body={"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'volumeName may be set once', 200, eq('spec.volumeName', 'pvA'), body={"spec": {"volumeName": "pvA"}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'and not changed', 422, None, body={"spec": {"volumeName": "pvB"}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3/status', 'status Bound with capacity 1Gi', 200, eq('status.phase', 'Bound'), body={"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}, ct=MP)
ck(S, 'GET', N + '/persistentvolumeclaims/c3', 'Table cells Bound,pvA,1Gi,RWO (capacity and modes come from status, shown only when volumeName is set)', 200, cells('c3', 'Bound', 'pvA', '1Gi', 'RWO', 'conf-sc', '<unset>', 'Filesystem'), acc=TAB)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'grow, class forbids: 403 `only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`', 403, st('Forbidden', 'only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize'), body={"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, ct=MP)
ck(S, 'PATCH', ST + '/storageclasses/conf-sc', 'allowVolumeExpansion is mutable', 200, eq('allowVolumeExpansion', True), body={"allowVolumeExpansion": True}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'grow now allowed', 200, eq('spec.resources.requests.storage', '2Gi'), body={"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, ct=MP, sleep=1)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'shrink to a value above status.capacity: allowed', 200, None, body={"spec": {"resources": {"requests": {"storage": "1536Mi"}}}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'shrink to status.capacity: 422 `field can not be less than status.capacity`', 422, st('Invalid', 'field can not be less than status.capacity'), body={"spec": {"resources": {"requests": {"storage": "1Gi"}}}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3', 'volumeAttributesClassName may be set on a bound claim', 200, None, body={"spec": {"volumeAttributesClassName": "v1"}}, ct=MP)
ck(S, 'PATCH', N + '/persistentvolumeclaims/c3/status', 'allocatedResourceStatuses value not in the five states: 422', 422, st('Invalid', 'status.allocatedResourceStatuses: Unsupported value'), body={"status": {"allocatedResourceStatuses": {"storage": "Foo"}}}, ct=MP)
ck(S, 'PUT', N + '/persistentvolumeclaims/c3/status?dryRun=All', 'PUT /status with bare metadata strips finalizers, labels and annotations (reference behaviour)', 200, lambda r: 'finalizers' not in r.j['metadata'], body={"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c3"}, "status": {"phase": "Lost"}})

S = 'VolumeAttachment, CSI kinds, VAC'
VA = ST + '/volumeattachments'
ck(S, 'POST', VA, 'status supplied at create is discarded: {"attached":false}', 201, eq('status', {'attached': False}), body=sto('VolumeAttachment', 'conf-va', spec={"attacher": "d.io", "nodeName": "n1", "source": {"persistentVolumeName": "conf-pv1"}}, status={"attached": True}))
ck(S, 'PATCH', VA + '/conf-va', 'spec immutable: 422 `spec: Invalid value`', 422, st('Invalid', 'field is immutable'), body={"spec": {"nodeName": "n2"}}, ct=MP)
ck(S, 'PATCH', VA + '/conf-va/status', 'status written; labels and finalizers in the same patch are ignored', 200, lambda r: r.j['status']['attached'] is True and 'labels' not in r.j['metadata'], body={"metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]}, "status": {"attached": True}}, ct=MP)
ck(S, 'PUT', VA + '/conf-va/status', 'no resourceVersion: 422 must be specified for an update', 422, st('Invalid', 'must be specified for an update'), body=sto('VolumeAttachment', 'conf-va', status={"attached": False}))
ck(S, 'POST', VA, 'no source: 422 `must specify exactly one of inlineVolumeSpec and persistentVolumeName`', 422, st('Invalid', 'must specify exactly one of inlineVolumeSpec and persistentVolumeName'), body=sto('VolumeAttachment', 'conf-x', spec={"attacher": "d", "nodeName": "n", "source": {}}))
ck(S, 'GET', VA + '/conf-va', 'Table: conf-va,d.io,conf-pv1,n1,true', 200, cells('conf-va', 'd.io', 'conf-pv1', 'n1', True), acc=TAB)
ck(S, 'POST', ST + '/csidrivers', 'seven defaults filled: attachRequired true, podInfoOnMount false, storageCapacity false, fsGroupPolicy ReadWriteOnceWithFSType, volumeLifecycleModes ["Persistent"], requiresRepublish false, seLinuxMount false; generation absent', 201, lambda r: r.j['spec'] == {"attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"], "storageCapacity": False, "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False, "seLinuxMount": False} and 'generation' not in r.j['metadata'], body=sto('CSIDriver', 'conf.d.io', spec={}))
ck(S, 'PATCH', ST + '/csidrivers/conf.d.io', 'attachRequired and volumeLifecycleModes immutable; first path printed as spec.attachedRequired', 422, st('Invalid', 'spec.attachedRequired: Invalid value: false: field is immutable'), body={"spec": {"attachRequired": False}}, ct=MP)
ck(S, 'PATCH', ST + '/csidrivers/conf.d.io', 'other spec change: generation 1', 200, eq('metadata.generation', 1), body={"spec": {"podInfoOnMount": True}}, ct=MP)
ck(S, 'POST', ST + '/csinodes', 'two drivers with one name: 422 Duplicate value', 422, st('Invalid', 'Duplicate value: "a"'), body=sto('CSINode', 'conf-n', spec={"drivers": [{"name": "a", "nodeID": "x", "topologyKeys": []}, {"name": "a", "nodeID": "y", "topologyKeys": []}]}))
ck(S, 'POST', ST + '/csinodes', 'fixture node', 201, None, body=sto('CSINode', 'conf-n', spec={"drivers": [{"name": "a", "nodeID": "x", "topologyKeys": ["k/l"], "allocatable": {"count": 3}}]}))
ck(S, 'PATCH', ST + '/csinodes/conf-n', 'nodeID of an existing driver: 422 field is immutable', 422, st('Invalid', 'field is immutable'), body={"spec": {"drivers": [{"name": "a", "nodeID": "z"}]}}, ct=SP)
ck(S, 'PATCH', ST + '/csinodes/conf-n', 'allocatable.count may change (1.35+)', 200, lambda r: r.j['spec']['drivers'][0]['allocatable']['count'] == 9, body={"spec": {"drivers": [{"name": "a", "allocatable": {"count": 9}}]}}, ct=SP)
CP = '/apis/storage.k8s.io/v1/namespaces/conf/csistoragecapacities'
ck(S, 'POST', CP, 'capacity object', 201, eq('capacity', '10Gi'), body=dict(sto('CSIStorageCapacity', 'cap1', storageClassName='conf-sc', capacity='10Gi', nodeTopology={"matchLabels": {"a": "b"}})))
ck(S, 'PATCH', CP + '/cap1', 'nodeTopology and storageClassName immutable', 422, st('Invalid', 'field is immutable'), body={"storageClassName": "x"}, ct=MP)
ck(S, 'GET', CP + '/cap1', 'Table columns are only Name, Created At', 200, cols('Name', 'Created At'), acc=TAB)
ck(S, 'DELETE', CP + '/cap1', 'returns Status Success with details.uid (not the object)', 200, lambda r: r.j['kind'] == 'Status' and r.j['status'] == 'Success' and 'uid' in r.j['details'])
ck(S, 'POST', ST + '/volumeattributesclasses', 'finalizer kubernetes.io/vac-protection', 201, eq('metadata.finalizers', ['kubernetes.io/vac-protection']), body=sto('VolumeAttributesClass', 'conf-vac', driverName='d.io', parameters={"a": "b"}))
ck(S, 'PATCH', ST + '/volumeattributesclasses/conf-vac', 'parameters: 422 `updates to parameters are forbidden.`', 422, st('Invalid', 'updates to parameters are forbidden.'), body={"parameters": {"a": "c"}}, ct=MP)

S = 'Delete, finalizers, namespaces'
ck(S, 'POST', N + '/configmaps', 'fixture with finalizer', 201, None, body=cm('d1', finalizers=['x.io/y']))
ck(S, 'DELETE', N + '/configmaps/d1', 'returns the object, deletionTimestamp set, still readable', 200, lambda r: r.j['kind'] == 'ConfigMap' and r.j['metadata']['deletionGracePeriodSeconds'] == 0)
ck(S, 'PATCH', N + '/configmaps/d1', 'new finalizer while deleting: 422 `no new finalizers can be added if the object is being deleted`', 422, st('Invalid', 'no new finalizers can be added if the object is being deleted'), body={"metadata": {"finalizers": ["x.io/y", "x.io/z"]}}, ct=MP)
ck(S, 'POST', N + '/configmaps', 'create same name: AlreadyExists prefixed `object is being deleted: `', 409, st('AlreadyExists', 'object is being deleted: configmaps "d1" already exists'), body=cm('d1'))
ck(S, 'PATCH', N + '/configmaps/d1', 'removing the last finalizer deletes: 200 with the object', 200, None, body={"metadata": {"finalizers": None}}, ct=MP)
ck(S, 'GET', N + '/configmaps/d1', 'gone', 404, None)
ck(S, 'POST', N + '/configmaps', 'fixture d2', 201, None, body=cm('d2'))
ck(S, 'DELETE', N + '/configmaps/d2', 'precondition uid mismatch: Conflict `the UID in the precondition (abc) does not match the UID in record`, details.kind is the Kind ConfigMap', 409, al(st('Conflict', 'the UID in the precondition (abc) does not match the UID in record'), eq('details.kind', 'ConfigMap')), body={"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "abc"}})
ck(S, 'DELETE', N + '/configmaps/d2?propagationPolicy=Foreground', 'adds finalizer foregroundDeletion and deletionTimestamp', 200, eq('metadata.finalizers', ['foregroundDeletion']))
ck(S, 'DELETE', N + '/configmaps/d2', 'propagationPolicy Background in the body drops that finalizer and deletes: Status Success', 200, eq('status', 'Success'), body={"propagationPolicy": "Background"})
ck(S, 'DELETE', N + '/configmaps/none', 'NotFound', 404, None)
ck(S, 'DELETE', N + '/configmaps?labelSelector=zz%3D1', 'deletecollection with no match: 200 list with items []', 200, lambda r: r.j['items'] == [])
ck(S, 'DELETE', '/api/v1/namespaces/default', 'Forbidden `this namespace may not be deleted`', 403, st('Forbidden', 'this namespace may not be deleted'))
ck(S, 'POST', '/api/v1/namespaces', 'fixture namespace', 201, None, body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conf2"}})
ck(S, 'DELETE', '/api/v1/namespaces/conf2', 'phase Terminating, deletionTimestamp, no deletionGracePeriodSeconds, spec.finalizers still ["kubernetes"]', 200, lambda r: r.j['status']['phase'] == 'Terminating' and 'deletionGracePeriodSeconds' not in r.j['metadata'])
ck(S, 'POST', '/api/v1/namespaces/conf2/configmaps', 'Forbidden, cause reason NamespaceTerminating', 403, lambda r: r.j['details']['causes'][0]['reason'] == 'NamespaceTerminating', body=cm('x'))
ck(S, 'PUT', '/api/v1/namespaces/conf2/finalize', 'empty spec.finalizers on a terminating namespace removes it', 200, None, body={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conf2"}, "spec": {"finalizers": []}})
ck(S, 'GET', '/api/v1/namespaces/conf2', 'gone', 404, None)

S = 'Events, secrets, auth'
ck(S, 'POST', N + '/events', 'core event for a cluster-scoped object in a non-default namespace: 422 `does not match event.namespace`', 422, st('Invalid', 'does not match event.namespace'), body={"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e0"}, "involvedObject": {"kind": "PersistentVolume", "name": "p"}, "reason": "R"})
ck(S, 'POST', '/apis/events.k8s.io/v1/namespaces/conf/events', 'events.k8s.io needs eventTime and type', 422, st('Invalid', 'eventTime: Required value'), body={"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1"}, "regarding": {"kind": "PersistentVolumeClaim", "namespace": "conf", "name": "c1"}, "reason": "R"})
ck(S, 'POST', '/apis/events.k8s.io/v1/namespaces/conf/events', 'stored once, MicroTime with 6 digits', 201, eq('eventTime', '2026-01-01T00:00:00.123456Z'), body={"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1"}, "regarding": {"kind": "PersistentVolumeClaim", "namespace": "conf", "name": "c1"}, "reason": "R", "note": "n", "type": "Normal", "action": "A", "reportingController": "x.io/c", "reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.123456Z"})
ck(S, 'GET', N + '/events/e1', 'same object through core v1: message n, involvedObject, reportingComponent', 200, al(eq('message', 'n'), eq('reportingComponent', 'x.io/c')))
ck(S, 'GET', N + '/events?fieldSelector=involvedObject.kind%3DPersistentVolumeClaim,involvedObject.name%3Dc1', 'field selectors on events', 200, lambda r: len(r.j['items']) == 1)
ck(S, 'POST', N + '/secrets', 'stringData is merged into data (base64) and not returned; type Opaque', 201, lambda r: r.j['data'] == {'a': 'Yg=='} and 'stringData' not in r.j and r.j['type'] == 'Opaque', body={"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}})
ck(S, 'PATCH', N + '/secrets/s', 'type immutable: 422', 422, st('Invalid', 'type: Invalid value'), body={"type": "x"}, ct=MP)
ck(S, 'POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', 'status.allowed true for the admin', 201, eq('status.allowed', True), body={"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "conf"}}})
ck(S, 'POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', 'status.userInfo.username and groups incl. system:authenticated', 201, lambda r: 'system:authenticated' in r.j['status']['userInfo']['groups'], body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
ck(S, 'GET', '/api/v1/namespaces', 'anonymous: Forbidden `namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" at the cluster scope`', 403, st('Forbidden', 'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" at the cluster scope'), anon=True)
ck(S, 'GET', '/readyz', 'anonymous: 200', 200, None, anon=True)
ck(S, 'GET', '/api/v1/namespaces', 'bad bearer token: 401 Status Unauthorized/Unauthorized', 401, lambda r: r.j['message'] == 'Unauthorized' and r.j['reason'] == 'Unauthorized', anon=True, hdr=lambda: {'Authorization': 'Bearer x'})
ck(S, 'POST', N + '/serviceaccounts', 'fixture service account', 201, None, body={"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa1"}})
ck(S, 'POST', N + '/serviceaccounts/sa1/token', 'TokenRequest: status.token is a three-part JWT, status.expirationTimestamp set', 201, lambda r: r.j['status']['token'].count('.') == 2 and V.update(tok=r.j['status']['token']) is None, body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}})
ck(S, 'GET', N + '/secrets', 'that token without any role: Forbidden naming system:serviceaccount:conf:sa1', 403, st('Forbidden', 'User "system:serviceaccount:conf:sa1" cannot list resource "secrets" in API group "" in the namespace "conf"'), anon=True, hdr=lambda: {'Authorization': 'Bearer ' + V['tok']})
ck(S, 'POST', '/apis/authentication.k8s.io/v1/tokenreviews', 'TokenReview of it: authenticated true', 201, eq('status.authenticated', True), body=lambda: {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": V['tok']}})

def ld(f, b): return bytes([f << 3 | 2, len(b)]) + b
def unk(av, kind, raw): return b'k8s\0' + ld(1, ld(1, av) + ld(2, kind)) + ld(2, raw)
S = 'Protobuf request bodies (needed by every Go typed client)'
ck(S, 'POST', N + '/configmaps', 'protobuf ConfigMap pb1, Accept JSON: created, JSON answer', 201, eq('metadata.name', 'pb1'), body=unk(b'v1', b'ConfigMap', ld(1, ld(1, b'pb1'))), ct=PB)
ck(S, 'DELETE', N + '/configmaps/pb1', 'protobuf DeleteOptions{propagationPolicy Background}: Success', 200, eq('status', 'Success'), body=unk(b'v1', b'DeleteOptions', ld(4, b'Background')), ct=PB)
ck(S, 'POST', '/apis/coordination.k8s.io/v1/namespaces/conf/leases', 'protobuf Lease (leader election does this)', 201, eq('spec.holderIdentity', 'me'), body=unk(b'coordination.k8s.io/v1', b'Lease', ld(1, ld(1, b'pbl')) + ld(2, ld(1, b'me'))), ct=PB)
ck(S, 'POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', 'protobuf SelfSubjectAccessReview (kubectl auth can-i)', 201, eq('status.allowed', True), body=unk(b'authorization.k8s.io/v1', b'SelfSubjectAccessReview', ld(2, ld(1, ld(1, b'conf') + ld(2, b'get') + ld(5, b'pods')))), ct=PB)
ck(S, 'POST', N + '/configmaps', 'protobuf without the 4-byte magic: BadRequest', 400, st('BadRequest', ''), body=b'xxxx', ct=PB)
ck(S, 'DELETE', ST + '/volumeattachments/conf-va', 'JSON DeleteOptions stamped apiVersion storage.k8s.io/v1 is accepted (Go clients stamp their own group)', 200, eq('kind', 'VolumeAttachment'), body={"kind": "DeleteOptions", "apiVersion": "storage.k8s.io/v1"})

S = 'CustomResourceDefinition'
CR = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
def crd(**kw):
    v = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "a is immutable"}]}, "b": {"type": "string"}}}, "status": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}}, "additionalPrinterColumns": [{"name": "Ok", "type": "boolean", "jsonPath": ".status.ok"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.conf.io"}, "spec": {"group": "conf.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]}, "versions": [v]}}
F = '/apis/conf.io/v1/namespaces/conf/foos'
def foo(n, **kw): return dict({"apiVersion": "conf.io/v1", "kind": "Foo", "metadata": {"name": n}}, **kw)
ck(S, 'POST', CR, 'singular "foo" and listKind "FooList" defaulted, conversion None, generation 1, storedVersions ["v1"]', 201, lambda r: r.j['spec']['names']['singular'] == 'foo' and r.j['spec']['names']['listKind'] == 'FooList' and r.j['spec']['conversion'] == {'strategy': 'None'} and r.j['status']['storedVersions'] == ['v1'], body=crd())
ck(S, 'GET', CR + '/foos.conf.io', 'within a second: conditions NamesAccepted and Established True', 200, lambda r: {c['type']: c['status'] for c in r.j['status']['conditions']} == {'NamesAccepted': 'True', 'Established': 'True'}, sleep=1)
ck(S, 'POST', CR, 'metadata.name not plural.group: 422 `must be spec.names.plural+"."+spec.group`', 422, st('Invalid', 'must be spec.names.plural+"."+spec.group'), body=lambda: dict(crd(), metadata={"name": "x"}))
ck(S, 'GET', '/apis/conf.io/v1', 'discovery row foos, verbs order delete,deletecollection,get,list,patch,create,update,watch', 200, lambda r: r.j['resources'][0]['verbs'] == ['delete', 'deletecollection', 'get', 'list', 'patch', 'create', 'update', 'watch'], sleep=1)
ck(S, 'POST', F, 'unknown field pruned with a Warning; status dropped; generation 1', 201, lambda r: 'zz' not in r.j['spec'] and 'status' not in r.j and r.j['metadata']['generation'] == 1 and r.warn, body=foo('f', spec={"a": "1", "zz": 1}, status={"ok": True}))
ck(S, 'POST', F, 'wrong type: 422 cause reason FieldValueTypeInvalid', 422, lambda r: r.j['details']['causes'][0]['reason'] == 'FieldValueTypeInvalid', body=foo('g', spec={"a": 5}))
ck(S, 'POST', F, 'no kind: BadRequest `Object \'Kind\' is missing` (unlike built-ins)', 400, st('BadRequest', "Object 'Kind' is missing"), body={"metadata": {"name": "g"}})
ck(S, 'PATCH', F + '/f', 'transition rule: 422 `spec.a: Invalid value: "2": a is immutable`', 422, st('Invalid', 'a is immutable'), body={"spec": {"a": "2"}}, ct=MP)
ck(S, 'PATCH', F + '/f', 'spec change: generation 2', 200, eq('metadata.generation', 2), body={"spec": {"b": "x"}}, ct=MP)
ck(S, 'PATCH', F + '/f/status', 'status written; spec and labels ignored; generation still 2', 200, lambda r: r.j['status'] == {'ok': True} and r.j['spec']['b'] == 'x' and 'labels' not in r.j['metadata'] and r.j['metadata']['generation'] == 2, body={"metadata": {"labels": {"q": "r"}}, "spec": {"b": "y"}, "status": {"ok": True}}, ct=MP)
ck(S, 'PATCH', F + '/f', 'strategic merge patch on a custom resource: 415 listing the three accepted types', 415, st('UnsupportedMediaType', 'application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml'), body={}, ct=SP)
ck(S, 'PUT', F + '/f', 'no resourceVersion: 422 must be specified for an update', 422, st('Invalid', 'must be specified for an update'), body=foo('f', spec={"a": "1"}))
ck(S, 'GET', F, 'list items DO carry apiVersion and kind', 200, lambda r: r.j['items'][0]['kind'] == 'Foo')
ck(S, 'GET', F + '/f', 'Table columns Name, Ok, Age', 200, cols('Name', 'Ok', 'Age'), acc=TAB)
ck(S, 'GET', F + '/f', 'Accept protobuf only: 406', 406, None, acc=PB)
ck(S, 'DELETE', F + '/f', 'Status Success', 200, eq('status', 'Success'))
ck(S, 'DELETE', CR + '/foos.conf.io', 'object with finalizer customresourcecleanup.apiextensions.k8s.io; gone shortly after', 200, eq('metadata.finalizers', ['customresourcecleanup.apiextensions.k8s.io']))

# ---- kubectl checks: (command, return code, expected text in stdout+stderr, stdin) ; {v} = kubectl index, keeps names apart
KC = []
def kc(cmd, rc, exp, stdin=None, note=''): KC.append((cmd, rc, exp, stdin, note))
Y = 'apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: k{v}, namespace: conf, labels: {a: "%s"}}\nspec: {%saccessModes: [ReadWriteOnce], storageClassName: sc0, resources: {requests: {storage: 1Gi}}}\n'
kc('version', 0, ['Server Version: v1.'])
kc('get --raw /readyz', 0, ['ok'])
kc('api-resources --api-group=storage.k8s.io', 0, ['storageclasses', 'sc ', 'vac', 'CSIStorageCapacity'])
kc('apply -f -', 0, ['persistentvolumeclaim/k{v} created'], Y % ('1', ''))
kc('apply -f -', 0, ['persistentvolumeclaim/k{v} unchanged'], Y % ('1', ''))
kc('apply -f -', 0, ['persistentvolumeclaim/k{v} configured'], Y % ('2', ''))
kc('apply -f -', 1, ['The request is invalid: patch: Invalid value', 'strict decoding error: unknown field "spec.foo"'], Y % ('2', 'foo: 1, '), 'existing object, so a strategic PATCH answered 422; on create it is 400 BadRequest')
kc('apply --dry-run=server --validate=warn -f -', 0, ['Warning: unknown field "spec.foo"'], Y % ('2', 'foo: 1, '))
kc('create -f -', 1, ['Error from server (AlreadyExists)', 'persistentvolumeclaims "k{v}" already exists'], Y % ('2', ''))
kc('diff -f -', 0, [], Y % ('2', ''))
kc('diff -f -', 1, ['+    a: "3"'], Y % ('3', ''))
kc('apply --server-side -f -', 0, ['persistentvolumeclaim/k{v} serverside-applied'], Y % ('2', ''), 'migrates the client-side-apply manager with 3 extra PATCHes')
kc('apply --server-side --field-manager=other -f -', 1, ['conflict'], Y % ('9', ''))
kc('get pvc -n conf', 0, ['NAME', 'STATUS', 'VOLUME', 'CAPACITY', 'ACCESS MODES', 'STORAGECLASS', 'VOLUMEATTRIBUTESCLASS', 'AGE'])
kc('get pvc k{v} -n conf -o wide', 0, ['VOLUMEMODE', 'Filesystem'])
kc('get pvc -n conf --sort-by=.metadata.name -o name', 0, ['persistentvolumeclaim/k{v}'])
kc('get pvc nope -n conf', 1, ['Error from server (NotFound): persistentvolumeclaims "nope" not found'])
kc('get pvc -n conf --field-selector spec.x=1', 1, ['Error from server (BadRequest)', 'is not a known field selector'])
kc('get pvc k{v} -n conf -w --request-timeout=2s', None, ['k{v}', 'Pending'], None, 'one row now, then blocks; the timeout ends it')
kc('describe pvc k{v} -n conf', 0, ['Name:          k{v}', 'Finalizers:    [kubernetes.io/pvc-protection]', 'Used By:       <none>'])
kc('explain pvc.spec', 0, ['FIELD: spec <PersistentVolumeClaimSpec>', 'accessModes'])
kc('patch pvc k{v} -n conf --type=merge -p {"metadata":{"labels":{"p":"1"}}}', 0, ['persistentvolumeclaim/k{v} patched'])
kc('patch pvc k{v} -n conf --type=merge -p {"metadata":{"labels":{"p":"1"}}}', 0, ['persistentvolumeclaim/k{v} patched (no change)'])
kc('patch pvc k{v} -n conf --type=json -p [{"op":"test","path":"/metadata/name","value":"q"}]', 1, ['The request is invalid: the server rejected our request due to an error in our request'])
kc('patch pvc k{v} -n conf --subresource=status --type=merge -p {"status":{"phase":"Bound"}}', 0, ['patched'])
kc('label pvc k{v} -n conf l=1', 0, ['labeled'])
kc('annotate pvc k{v} -n conf l=1', 0, ['annotated'])
kc('replace -f -', 0, ['persistentvolumeclaim/k{v} replaced'], Y % ('4', ''), 'drops pvc-protection: PUT replaces metadata.finalizers')
kc('wait pvc/k{v} -n conf --for=jsonpath={.status.phase}=Bound --timeout=5s', 0, ['condition met'])
kc('wait pvc/k{v} -n conf --for=delete --timeout=1s', 1, ['timed out waiting for the condition'])
kc('patch sc conf-sc --type=merge -p {"provisioner":"q"}', 1, ['The StorageClass "conf-sc" is invalid: provisioner: Invalid value: "q": field is immutable'])
kc('auth can-i create pvc -n conf', 0, ['yes'], None, 'protobuf POST')
kc('auth can-i create pvc -n conf --as=bob', 1, ['no'])
kc('auth whoami', 0, ['system:authenticated'], None, 'protobuf POST')
kc('create sa ksa{v} -n conf', 0, ['serviceaccount/ksa{v} created'], None, 'protobuf POST')
kc('create token ksa{v} -n conf --duration=600s', 0, ['ey'], None, 'protobuf POST')
kc('create configmap kcm{v} -n conf --from-literal=a=b', 0, ['configmap/kcm{v} created'], None, 'protobuf POST')
kc('create secret generic ks{v} -n conf --from-literal=a=b', 0, ['secret/ks{v} created'], None, 'protobuf POST')
kc('get events -n conf', 0, ['LAST SEEN', 'REASON', 'OBJECT', 'MESSAGE'])
kc('events -n conf', 0, ['LAST SEEN', 'PersistentVolumeClaim/c1'])
kc('events -n conf --for pvc/c1', 0, ['No events found in conf namespace.'], None, 'the selector adds involvedObject.apiVersion=v1; event e1 of API-C189 has none, so it must not match')
kc('get all,pvc -n conf', 0, ['persistentvolumeclaim/k{v}'])
kc('delete pvc k{v} -n conf --timeout=5s', 0, ['persistentvolumeclaim "k{v}" deleted'])
kc('delete ns default', 1, ['Error from server (Forbidden)', 'this namespace may not be deleted'])
kc('--as=bob get pvc -n conf', 1, ['Error from server (Forbidden): persistentvolumeclaims is forbidden: User "bob" cannot list resource "persistentvolumeclaims" in API group "" in the namespace "conf"'])
def rule(kind, number): return 'API-%s' % kind + ('%03d' if kind == 'C' else '%02d') % number
def kubectl():
    import subprocess, tempfile
    bad = 0; n = 0
    for v, k in enumerate(os.environ.get('KUBECTLS', 'kubectl').split()):
        d = tempfile.mkdtemp()
        for i, (cmd, rc, exp, stdin, note) in enumerate(KC, 1):
            f = lambda x: x.replace('{v}', str(v)); n += 1
            try:
                r = subprocess.run([k, '--cache-dir', d] + f(cmd).split(' '), input=f(stdin) if stdin else '', capture_output=True, text=True, timeout=40)
                out = r.stdout + r.stderr; code = r.returncode
            except subprocess.TimeoutExpired as e: out = str(e); code = -1
            miss = [e for e in exp if f(e) not in out]
            if (rc is not None and code != rc) or miss: bad += 1; print('FAIL %s %s rc=%s missing=%s | %s' % (rule('K', i), f(cmd), code, miss, out[:300]))
    print('%d kubectl checks, %d failed' % (n, bad)); return bad

def short(b):
    if b is None: return ''
    if callable(b):
        try: b = b()
        except KeyError: return ' {token from the previous call}'
    if isinstance(b, bytes): return ' <protobuf>'
    if isinstance(b, str): return ' ' + b
    if isinstance(b, dict) and 'kind' in b and 'apiVersion' in b:
        k = b['kind']; r = {x: y for x, y in b.items() if x not in ('kind', 'apiVersion')}
        base = {'PersistentVolumeClaim': pvc('x'), 'PersistentVolume': pv('x')}.get(k)
        if base and isinstance(r.get('spec'), dict) and set(base['spec']) <= set(r['spec']):
            r['spec'] = {x: y for x, y in r['spec'].items() if base['spec'].get(x) != y} or None
            r = {x: y for x, y in r.items() if y is not None}; k = {'PersistentVolumeClaim': 'PVC', 'PersistentVolume': 'PV'}[k] + '*'
        if k == 'CustomResourceDefinition': return ' CRD foos.conf.io'
        j = k + json.dumps(r, separators=(',', ':'))
    else: j = json.dumps(b, separators=(',', ':'))
    return ' ' + (j if len(j) <= 230 else j[:230] + '...')

def main():
    if sys.argv[1:] == ['md']:
        sec = None
        for i, (s, m, p, exp, code, pred, kw) in enumerate(CH, 1):
            if s != sec: print('\n**%s**' % s); sec = s
            p = p if isinstance(p, str) else '{C}?<token or resourceVersion of the previous answer>'
            p = p.replace(N + '/persistentvolumeclaims', '{C}').replace(N, '{N}').replace(ST, '{ST}').replace(PVS, '{V}')
            extra = ''
            if kw.get('ct'): extra = {MP: ' [merge]', JP: ' [json]', SP: ' [strategic]', AP: ' [apply]'}.get(kw['ct'], ' [' + kw['ct'] + ']')
            if kw.get('acc') == TAB: extra += ' [Table]'
            elif kw.get('acc') == AGG: extra += ' [aggregated]'
            print('- <a id="%s"></a>%s: `%s %s%s`%s -> %d; %s' % (rule('C', i).lower(), rule('C', i), m, p, short(kw.get('body')), extra, code, exp))
        print('\n**kubectl (run after the lines above; {v} is any suffix; `-f -` reads a PVC manifest named k{v} from stdin)**')
        for i, (cmd, rc, exp, stdin, note) in enumerate(KC, 1):
            print('- <a id="%s"></a>%s: `kubectl %s`%s -> rc %s; %s%s' % (rule('K', i).lower(), rule('K', i), cmd, {True: ' (label a="%s"%s)' % (re.search('a: "(.)"', stdin).group(1), ', unknown field spec.foo' if 'foo' in stdin else '') if stdin else ''}.get(bool(stdin), ''), 'any' if rc is None else rc, ', '.join('`%s`' % e for e in exp) or 'no output', ' — ' + note if note else ''))
        return
    if sys.argv[1:] == ['kubectl']: sys.exit(kubectl() > 0)
    import time
    bad = 0
    for i, (s, m, p, exp, code, pred, kw) in enumerate(CH, 1):
        kw = dict(kw)
        if 'sleep' in kw: time.sleep(kw.pop('sleep'))
        if 'pre' in kw: kw.pop('pre')()
        r = None
        try:
            if callable(p): p = p()
            for k in ('hdr', 'body'):
                if callable(kw.get(k)): kw[k] = kw[k]()
            r = call(m, p, **kw); ok = r.code == code; why = 'code %d' % r.code
            if ok and pred:
                ok = bool(pred(r)); why = 'predicate'
        except Exception as e: ok = False; why = repr(e)
        if not ok: bad += 1; print('FAIL %s %s %s: %s (want %d) | %s | %s' % (rule('C', i), m, p, why, code, exp[:90], (r.t[:400] if r else '')))
    print('%d checks, %d failed' % (len(CH), bad)); sys.exit(bad > 0)
main()
