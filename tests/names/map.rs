// A map, strings and threads: what allocates is in the library of Rust.
use std::collections::HashMap;
use std::thread;

fn fill(map: &mut HashMap<u64, String>) {
    for i in 0..500u64 {
        map.insert(i, format!("value {}", i));
    }
}
fn main() {
    let mut map = HashMap::new();
    fill(&mut map);
    let sums: Vec<_> = (0..2u8)
        .map(|i| thread::spawn(move || (0..100).map(|j| vec![i; j]).map(|v| v.len()).sum::<usize>()))
        .collect();
    let sum: usize = sums.into_iter().map(|t| t.join().unwrap()).sum();
    Box::leak(vec![0u8; 4321].into_boxed_slice());
    println!("{} {}", map.len(), sum);
}
