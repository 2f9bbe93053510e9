//! SLURM's short forms: lists of hosts (`node[01-04,7],login`) and of tasks (`2(x3),1`).

/// The first host of a list, or nothing if the list is not one.
pub fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find([',', '[']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        if !rest[end..].starts_with('[') {
            break;
        }
        let (inside, after) = rest[end + 1..].split_once(']')?;
        let first = inside.split([',', '-']).next().unwrap_or_default();
        if first.is_empty() || !first.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        host.push_str(first);
        rest = after;
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_name)).then_some(host)
}

/// How many tasks the node of this number has.
pub fn tasks_on(node: usize, list: &str) -> Option<usize> {
    let mut before = 0usize;
    for group in list.trim().split(',') {
        let (tasks, nodes) = match group.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (group, 1),
        };
        before = before.checked_add(nodes)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list() {
        for (list, want) in [
            ("gnode10", Some("gnode10")),
            ("a,b", Some("a")),
            ("gnode[10,20,25-37]", Some("gnode10")),
            ("node[001-004],login", Some("node001")),
            ("rack[1-2]node[03,4]", Some("rack1node03")),
            ("n[7].cluster.org,n[8].cluster.org", Some("n7.cluster.org")),
            ("", None),
            ("node[", None),
            ("node[]", None),
            ("node[-3]", None),
            ("node]", None),
            ("node[a-b]", None),
            ("[1-2]", Some("1")),
            ("(null)", None),
            ("ü", None),
        ] {
            assert_eq!(first_host(list).as_deref(), want, "{list}");
        }
    }

    #[test]
    fn the_tasks_of_a_node() {
        for (node, list, want) in [
            (0, "2(x3),1", Some(2)),
            (2, "2(x3),1", Some(2)),
            (3, "2(x3),1", Some(1)),
            (4, "2(x3),1", None),
            (0, "8", Some(8)),
            (0, "", None),
            (0, "x", None),
            (0, "2(x", None),
            (0, "2(xy)", None),
            (usize::MAX, "1(x18446744073709551615),1", None),
        ] {
            assert_eq!(tasks_on(node, list), want, "{node} of {list}");
        }
    }
}
