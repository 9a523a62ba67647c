//! Keys of the drivers that took over from in-tree plugins.

/// Labels by which drivers name the place of a node.
pub(super) mod topology {
    pub(crate) const GCE_ZONE: &str = "topology.gke.io/zone";
    pub(crate) const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";
    pub(crate) const CINDER_ZONE: &str = "topology.cinder.csi.openstack.org/zone";
    pub(crate) const AZURE_DISK_ZONE: &str = "topology.disk.csi.azure.com/zone";
    pub(crate) const VSPHERE_ZONE: &str = "topology.csi.vmware.com/zone";
    pub(crate) const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";
}
