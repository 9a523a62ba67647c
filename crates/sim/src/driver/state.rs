//! What the model driver's backend holds, and what it says to each call: no time, no faults, no chance.
//!
//! It is as strict as CSI allows. Creating is idempotent by name: the same request again gives the same volume, another
//! request under the same name is ALREADY_EXISTS. Deleting is idempotent by id.

use std::collections::BTreeMap;

use csi::v1;
use tonic::{Code, Status};
use v1::volume_content_source::Type as From;

use super::attach::Attachments;
use crate::keys;

/// A parameter with which a class can never be served: what a user writes by mistake.
pub const BAD_PARAMETER: &str = "nonsense";

/// A volume that exists.
#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub bytes: i64,
    /// Where it is, if the driver knows places.
    pub zone: Option<String>,
    /// What it was asked for with; secrets are not kept.
    terms: Terms,
}

/// What has to be the same when a request comes again.
#[derive(Debug, Clone, PartialEq)]
struct Terms {
    range: (i64, i64),
    parameters: BTreeMap<String, String>,
    capabilities: Vec<v1::VolumeCapability>,
    source: Option<v1::VolumeContentSource>,
}

impl Terms {
    fn of(request: &v1::CreateVolumeRequest) -> Self {
        let range = request.capacity_range.unwrap_or_default();
        Self {
            range: (range.required_bytes, range.limit_bytes),
            parameters: request.parameters.clone(),
            capabilities: request.volume_capabilities.clone(),
            source: request.volume_content_source.clone(),
        }
    }
}

/// Everything that survives crashes of everybody.
#[derive(Debug, Clone)]
pub struct State {
    /// By id.
    volumes: BTreeMap<String, Volume>,
    /// Bytes left by zone; a driver without places has one, with an empty name.
    room: BTreeMap<String, i64>,
    made: u64,
    pub(super) attachments: Attachments,
}

impl State {
    /// An empty backend with so many bytes in each zone; no zone at all means one place that is everywhere.
    pub fn new(zones: &[&str], bytes: i64) -> Self {
        let zones = if zones.is_empty() { &[""] } else { zones };
        let room = zones.iter().map(|zone| ((*zone).to_owned(), bytes)).collect();
        Self { volumes: BTreeMap::new(), room, made: 0, attachments: Attachments::default() }
    }

    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    pub fn get(&self, id: &str) -> Option<&Volume> {
        self.volumes.get(id)
    }

    pub fn named(&self, name: &str) -> Option<&Volume> {
        self.volumes.values().find(|volume| volume.name == name)
    }

    /// More room in every zone.
    pub fn grow(&mut self, bytes: i64) {
        for room in self.room.values_mut() {
            *room = room.saturating_add(bytes);
        }
    }

    /// What is left: in a place, or in the largest.
    pub fn room(&self, place: Option<&v1::Topology>) -> i64 {
        let there = |(zone, _): &(&String, &i64)| match place {
            Some(place) if !zone.is_empty() => place.segments.get(keys::ZONE) == Some(*zone),
            _ => true,
        };
        self.room.iter().filter(there).map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    /// CreateVolume.
    pub fn create(&mut self, request: &v1::CreateVolumeRequest) -> Result<v1::Volume, Status> {
        let terms = Terms::of(request);
        if let Some(found) = self.named(&request.name) {
            return match found.terms == terms && self.reaches(found, request) {
                true => Ok(self.answer(found)),
                false => Err(Status::already_exists(format!("{} exists with other terms", request.name))),
            };
        }
        self.check(request)?;
        let bytes = terms.range.0.max(1);
        let zone = self.place(request, bytes)?;
        if let Some(room) = self.room.get_mut(&zone) {
            *room -= bytes;
        }
        self.made += 1;
        let (id, zone) = (format!("vol-{}", self.made), Some(zone).filter(|zone| !zone.is_empty()));
        let volume = Volume { id: id.clone(), name: request.name.clone(), bytes, zone, terms };
        let answer = self.answer(&volume);
        self.volumes.insert(id, volume);
        Ok(answer)
    }

    /// A volume that somebody made before, under an id of his own.
    pub fn put(&mut self, id: &str, bytes: i64) {
        let terms = Terms::of(&v1::CreateVolumeRequest::default());
        let (id, name) = (id.to_owned(), id.to_owned());
        self.volumes.insert(id.clone(), Volume { id, name, bytes, zone: None, terms });
    }

    /// DeleteVolume. What is not there is gone, and that is a success.
    pub fn delete(&mut self, id: &str) -> Option<Volume> {
        let gone = self.volumes.remove(id)?;
        if let Some(room) = self.room.get_mut(gone.zone.as_deref().unwrap_or_default()) {
            *room = room.saturating_add(gone.bytes);
        }
        Some(gone)
    }

    fn check(&self, request: &v1::CreateVolumeRequest) -> Result<(), Status> {
        let (required, limit) = Terms::of(request).range;
        if request.name.is_empty() || request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("a volume needs a name and a capability"));
        }
        if request.parameters.contains_key(BAD_PARAMETER) {
            return Err(Status::invalid_argument(format!("there is no parameter {BAD_PARAMETER:?}")));
        }
        if limit != 0 && limit < required {
            return Err(Status::out_of_range("the limit is below what is required"));
        }
        match request.volume_content_source.as_ref().and_then(|source| source.r#type.as_ref()) {
            Some(From::Volume(source)) if !self.volumes.contains_key(&source.volume_id) => {
                Err(Status::not_found(format!("there is no volume {:?} to clone", source.volume_id)))
            }
            Some(From::Snapshot(source)) => Err(Status::not_found(format!("there is no {:?}", source.snapshot_id))),
            Some(From::Volume(_)) | None => Ok(()),
        }
    }

    /// The first zone with room: in the order of preference, then in the order of what is allowed.
    fn place(&self, request: &v1::CreateVolumeRequest, bytes: i64) -> Result<String, Status> {
        let wanted = request.accessibility_requirements.as_ref();
        let named = wanted.into_iter().flat_map(|wanted| wanted.preferred.iter().chain(&wanted.requisite));
        let mut zones: Vec<&String> = named.filter_map(|place| place.segments.get(keys::ZONE)).collect();
        if zones.is_empty() || self.room.contains_key("") {
            zones = self.room.keys().collect();
        }
        let fits = |zone: &&String| self.room.get(*zone).is_some_and(|room| *room >= bytes);
        let found = zones.into_iter().find(fits).cloned();
        found.ok_or_else(|| Status::new(Code::ResourceExhausted, format!("no room for {bytes} bytes")))
    }

    /// Whether a volume that exists is where a request wants it.
    fn reaches(&self, volume: &Volume, request: &v1::CreateVolumeRequest) -> bool {
        let requisite = request.accessibility_requirements.as_ref().map_or(&[][..], |wanted| &wanted.requisite);
        let Some(zone) = &volume.zone else { return true };
        requisite.is_empty() || requisite.iter().any(|place| place.segments.get(keys::ZONE) == Some(zone))
    }

    pub(super) fn answer(&self, volume: &Volume) -> v1::Volume {
        let place = |zone: &String| v1::Topology { segments: [(keys::ZONE.to_owned(), zone.clone())].into() };
        v1::Volume {
            capacity_bytes: volume.bytes,
            volume_id: volume.id.clone(),
            volume_context: BTreeMap::new(),
            content_source: volume.terms.source.clone(),
            accessible_topology: volume.zone.iter().map(place).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, bytes: i64) -> v1::CreateVolumeRequest {
        v1::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: vec![v1::VolumeCapability::default()],
            ..Default::default()
        }
    }

    fn in_zones(mut request: v1::CreateVolumeRequest, zones: &[&str]) -> v1::CreateVolumeRequest {
        let place = |zone: &&str| v1::Topology { segments: [(keys::ZONE.to_owned(), (*zone).to_owned())].into() };
        let requisite = zones.iter().map(place).collect();
        request.accessibility_requirements = Some(v1::TopologyRequirement { requisite, preferred: Vec::new() });
        request
    }

    #[test]
    fn creating_is_idempotent_by_name_and_strict_about_the_rest() {
        let mut state = State::new(&[], 10);
        let first = state.create(&request("a", 2)).expect("there is room");
        assert_eq!(state.create(&request("a", 2)).expect("it exists"), first);
        assert_eq!(state.create(&request("a", 3)).expect_err("another size").code(), Code::AlreadyExists);
        assert_eq!((state.volumes().count(), state.room(None)), (1, 8));
    }

    #[test]
    fn room_runs_out_and_comes_back() {
        let mut state = State::new(&[], 4);
        let made = state.create(&request("a", 3)).expect("there is room");
        assert_eq!(state.create(&request("b", 3)).expect_err("full").code(), Code::ResourceExhausted);
        assert_eq!(state.delete(&made.volume_id).map(|gone| gone.name), Some("a".to_owned()));
        assert_eq!(state.delete(&made.volume_id), None);
        state.create(&request("b", 3)).expect("there is room again");
    }

    #[test]
    fn a_volume_is_made_in_the_first_zone_with_room_and_stays_there() {
        let mut state = State::new(&["a", "b"], 4);
        state.create(&in_zones(request("x", 4), &["a"])).expect("a has room");
        let made = state.create(&in_zones(request("y", 2), &["a", "b"])).expect("b has room");
        assert_eq!(made.accessible_topology[0].segments[keys::ZONE], "b");
        let elsewhere = state.create(&in_zones(request("y", 2), &["a"]));
        assert_eq!(elsewhere.expect_err("it is in b").code(), Code::AlreadyExists);
        assert_eq!(state.create(&in_zones(request("z", 1), &["a"])).expect_err("full").code(), Code::ResourceExhausted);
    }
}
